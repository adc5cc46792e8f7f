// Markdown as elements: headings, lists, tables, code and links. No markup of the file becomes an element.
import type { ComponentChildren } from "preact";
import { HighlightedCode } from "./highlighted_code.tsx";
import type { Block, Inline } from "./markdown.ts";

export function MarkdownView({ blocks }: { blocks: readonly Block[] }) {
  return <div class="markdown">{blocks.map(shown)}</div>;
}

function shown(block: Block, key: number): ComponentChildren {
  switch (block.kind) {
    case "heading":
      return <Heading key={key} level={block.level} parts={block.parts} />;
    case "paragraph":
      return <p key={key}>{block.parts.map(inline)}</p>;
    case "code":
      return (
        <pre key={key} tabIndex={0}>
          <HighlightedCode text={block.text} ending={block.language} />
        </pre>
      );
    case "quote":
      return <blockquote key={key}>{block.blocks.map(shown)}</blockquote>;
    case "rule":
      return <hr key={key} />;
    case "list": {
      const items = block.items.map(({ isDone, blocks }, at) => (
        <li key={at} class={isDone === null ? "" : "task"}>
          {isDone !== null && (
            <span role="img" aria-label={isDone ? "done" : "to do"}>
              {isDone ? "☑" : "☐"}
            </span>
          )}
          {blocks.map(shown)}
        </li>
      ));
      return block.start === null ? (
        <ul key={key}>{items}</ul>
      ) : (
        <ol key={key} start={block.start}>
          {items}
        </ol>
      );
    }
    case "table":
      return (
        <div key={key} class="scroll" tabIndex={0} role="region" aria-label="Table">
          <table>
            <thead>
              <tr>
                {block.head.map((cell, at) => (
                  <th key={at}>{cell.map(inline)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {block.rows.map((row, at) => (
                <tr key={at}>
                  {row.map((cell, column) => (
                    <td key={column}>{cell.map(inline)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
  }
}

/** Below the title of the page, which is the name of the file. */
function Heading({ level, parts }: { level: number; parts: readonly Inline[] }) {
  const content = parts.map(inline);
  if (level <= 1) return <h2>{content}</h2>;
  if (level === 2) return <h3>{content}</h3>;
  if (level === 3) return <h4>{content}</h4>;
  return <h5>{content}</h5>;
}

function inline(part: Inline, key: number): ComponentChildren {
  switch (part.kind) {
    case "text":
      return part.text;
    case "break":
      return <br key={key} />;
    case "code":
      return <code key={key}>{part.text}</code>;
    case "strong":
      return <strong key={key}>{part.parts.map(inline)}</strong>;
    case "emphasis":
      return <em key={key}>{part.parts.map(inline)}</em>;
    case "deleted":
      return <del key={key}>{part.parts.map(inline)}</del>;
    case "image":
      return <img key={key} src={part.address} alt={part.text} />;
    case "link":
      // The other page learns neither the address of this one nor gets a handle of its window.
      return (
        <a key={key} href={part.address} target="_blank" rel="noopener noreferrer">
          {part.parts.map(inline)}
        </a>
      );
  }
}
