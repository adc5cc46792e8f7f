// Picture of a plot with its title and the names of its lines, as a PNG file.
import { saveBlob } from "../files/save_file.ts";
import { dashOf, type Look } from "./colours.ts";
import { fileName } from "./svg_picture.ts";

interface NamedLine extends Look {
  readonly name: string;
}

interface PictureColours {
  readonly text: string;
  readonly surface: string;
}

const ROW_PX = 20;
const SWATCH_PX = 22;
const MARGIN_PX = 12;

export function savePicture(host: HTMLElement, title: string, lines: readonly NamedLine[], colours: PictureColours): void {
  const drawn = host.querySelector("canvas");
  if (!drawn) return;
  const scale = drawn.width / Math.max(1, drawn.clientWidth);
  const picture = document.createElement("canvas");
  picture.width = drawn.width;
  picture.height = drawn.height + (lines.length + 2) * ROW_PX * scale;
  const context = picture.getContext("2d");
  if (!context) return;
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(drawn, 0, ROW_PX * scale);
  context.scale(scale, scale);
  context.textBaseline = "middle";
  context.fillStyle = colours.text;
  context.font = "bold 14px system-ui, sans-serif";
  context.fillText(title, MARGIN_PX, ROW_PX / 2);
  context.font = "13px system-ui, sans-serif";
  context.lineWidth = 3;
  for (const [at, { name, colour, round }] of lines.entries()) {
    const middle = drawn.height / scale + (at + 1.5) * ROW_PX;
    context.strokeStyle = colour;
    context.setLineDash([...dashOf({ round })]);
    context.beginPath();
    context.moveTo(MARGIN_PX, middle);
    context.lineTo(MARGIN_PX + SWATCH_PX, middle);
    context.stroke();
    context.fillStyle = colours.text;
    context.fillText(name, MARGIN_PX + SWATCH_PX + 8, middle);
  }
  picture.toBlob((blob) => blob && saveBlob(blob, `${fileName(title)}.png`));
}
