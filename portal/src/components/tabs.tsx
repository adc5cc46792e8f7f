// Tabs whose choice is in the address; arrow keys move between them.
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { address, setQuery } from "../router.ts";
import { useScrollLine } from "./scroll_line.ts";

interface Tab {
  readonly name: string;
  readonly label: string;
}

interface Props {
  readonly tabs: readonly Tab[];
  readonly label: string;
  readonly children: (selected: string) => ComponentChildren;
}

export function Tabs({ tabs, label, children }: Props) {
  const first = tabs[0]?.name ?? "";
  const wanted = address.value.query.get("tab") ?? first;
  const selected = tabs.some((tab) => tab.name === wanted) ? wanted : first;
  const select = (name: string, replace = false) => setQuery({ tab: name === first ? undefined : name }, { replace });
  const move = (event: KeyboardEvent) => {
    const at = tabs.findIndex((tab) => tab.name === selected);
    const places: Readonly<Record<string, number>> = {
      ArrowRight: (at + 1) % tabs.length,
      ArrowLeft: (at - 1 + tabs.length) % tabs.length,
      Home: 0,
      End: tabs.length - 1,
    };
    const next = tabs[places[event.key] ?? -1];
    if (!next) return;
    event.preventDefault();
    // Tabs that are passed by are no entries of the history.
    select(next.name, true);
    document.getElementById(`tab-${next.name}`)?.focus();
  };
  const line = useRef<HTMLDivElement>(null);
  useScrollLine(line, "[aria-selected=true]", selected);
  return (
    <>
      <div class="tabs" role="tablist" ref={line} aria-label={label} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.name}
            id={`tab-${tab.name}`}
            type="button"
            role="tab"
            aria-selected={tab.name === selected}
            aria-controls="tab-panel"
            tabIndex={tab.name === selected ? 0 : -1}
            onClick={() => select(tab.name)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${selected}`}>
        {children(selected)}
      </div>
    </>
  );
}
