// Figure of runs that is drawn as SVG: its title, its size, and the buttons that save it.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { savePng, saveSvg } from "../plot/svg_picture.ts";

/** Place of the pointer in the drawing, and the size of that. */
export interface Pointer {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

interface Props {
  readonly title: string;
  readonly kind: string;
  /** Text between the title and the plot. */
  readonly above?: ComponentChildren;
  /** Narrower windows scroll. */
  readonly minWidth?: number;
  /** For keys: the plot then has the focus. */
  readonly onKeyDown?: (event: KeyboardEvent) => void;
  /** null: it left the drawing. */
  readonly onPointer?: (pointer: Pointer | null) => void;
  /** For those who do not see it; with keys it is the name of the plot. */
  readonly description: string;
  readonly children: (width: number, height: number) => ComponentChildren;
}

export function RunFigure({ title, kind, above, minWidth = 0, onKeyDown, onPointer, description, children }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const size = useSignal({ width: 0, height: 0 });
  useEffect(() => {
    const box = host.current;
    if (!box) return;
    const observer = new ResizeObserver(() => (size.value = { width: box.clientWidth, height: box.clientHeight }));
    observer.observe(box);
    return () => observer.disconnect();
  }, [size]);
  const { height } = size.value;
  const width = size.value.width && Math.max(minWidth, size.value.width);
  const save = (write: (drawing: SVGSVGElement, title: string) => void) => () => {
    const drawing = host.current?.querySelector("svg");
    if (drawing) write(drawing, title);
  };
  const keys = onKeyDown ? { tabIndex: 0, role: "img" as const, "aria-label": description, onKeyDown } : {};
  const label = onKeyDown ? { "aria-hidden": true } : { role: "img" as const, "aria-label": description };
  return (
    <figure class="card padded plot metric" aria-label={title}>
      <figcaption>
        <strong>{title}</strong>
        <span class="actions">
          <button class="link" type="button" onClick={save(savePng)}>
            Download PNG
          </button>
          <button class="link" type="button" onClick={save(saveSvg)}>
            Download SVG
          </button>
        </span>
      </figcaption>
      {above}
      <div class={`plot-area tall run-figure ${kind}`} ref={host} {...keys}>
        {width > 0 && (
          <svg
            width={width}
            height={height}
            viewBox={`0 0 ${width} ${height}`}
            {...label}
            onPointerMove={({ currentTarget, clientX, clientY }) => {
              const { left, top } = currentTarget.getBoundingClientRect();
              onPointer?.({ x: clientX - left, y: clientY - top, width, height });
            }}
            onPointerLeave={() => onPointer?.(null)}
          >
            {children(width, height)}
          </svg>
        )}
      </div>
    </figure>
  );
}
