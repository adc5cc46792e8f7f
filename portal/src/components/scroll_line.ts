// A line of links or tabs that scrolls where it is too narrow: the current one is in view, and the edge behind
// which there are more fades.
import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";

/** Keep what `selector` finds in view: when `key` changes, and when the width does. */
export function useScrollLine(line: RefObject<HTMLElement | null>, selector: string, key: string): void {
  useEffect(() => {
    const element = line.current;
    if (!element) return;
    const mark = () => {
      const { scrollLeft, scrollWidth, clientWidth } = element;
      const left = scrollLeft > 1 ? "left" : "";
      const right = scrollLeft < scrollWidth - clientWidth - 1 ? "right" : "";
      element.dataset["more"] = `${left} ${right}`.trim();
    };
    const show = () => {
      const item = element.querySelector<HTMLElement>(selector);
      // Only the line: the page must not jump.
      if (item) element.scrollLeft = item.offsetLeft - (element.clientWidth - item.offsetWidth) / 2;
      mark();
    };
    const observer = new ResizeObserver(show);
    observer.observe(element);
    element.addEventListener("scroll", mark, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", mark);
    };
  }, [line, selector, key]);
}
