// Pictures of plots that are SVG, as files: with the colours that the theme has now, on its background.
import { saveBlob, saveFile } from "../files/save_file.ts";

const SHAPES = "line, text, circle, polygon, polyline";
const NAMESPACE = "http://www.w3.org/2000/svg";

export function saveSvg(drawing: SVGSVGElement, title: string): void {
  saveFile(standalone(drawing), `${fileName(title)}.svg`, "image/svg+xml");
}

export function savePng(drawing: SVGSVGElement, title: string): void {
  const scale = Math.max(2, window.devicePixelRatio);
  const { width, height } = drawing.getBoundingClientRect();
  const image = new Image();
  image.onload = () => {
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
    picture.getContext("2d")?.drawImage(image, 0, 0, picture.width, picture.height);
    picture.toBlob((blob) => blob && saveBlob(blob, `${fileName(title)}.png`));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(drawing))}`;
}

export function fileName(title: string): string {
  return title.replace(/[^\w.-]+/g, "-");
}

function standalone(drawing: SVGSVGElement): string {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  copy.setAttribute("xmlns", NAMESPACE);
  const [shown, copied] = [drawing, copy].map((one) => [...one.querySelectorAll(SHAPES)]);
  for (const [at, element] of (copied ?? []).entries()) {
    const original = shown?.[at];
    if (!original) continue;
    const { fill, stroke, strokeWidth, strokeDasharray, opacity, paintOrder, fontWeight } = getComputedStyle(original);
    element.removeAttribute("style");
    element.removeAttribute("class");
    for (const [name, value] of [
      ["fill", fill],
      ["stroke", stroke],
      ["stroke-width", strokeWidth],
      ["stroke-dasharray", strokeDasharray],
      ["opacity", opacity],
      // The outline of a text lies behind it.
      ["paint-order", paintOrder],
      ["font-weight", fontWeight],
    ] as const) {
      element.setAttribute(name, value);
    }
    if (element instanceof SVGTextElement) element.setAttribute("font-family", "system-ui, sans-serif");
    if (element instanceof SVGTextElement) element.setAttribute("font-size", "12");
  }
  const { backgroundColor } = getComputedStyle(drawing.closest("figure") ?? drawing);
  const background = document.createElementNS(NAMESPACE, "rect");
  for (const [name, value] of [
    ["width", "100%"],
    ["height", "100%"],
    ["fill", backgroundColor],
  ] as const)
    background.setAttribute(name, value);
  copy.prepend(background);
  return new XMLSerializer().serializeToString(copy);
}
