"""Make docs/terminal.svg from a real session: commands run at a pseudo-terminal, drawn as they print.

.venv/bin/python docs/make_terminal_picture.py
"""

import html
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROMPT = "~/quickstart $ "
SESSION = ["pai sub --follow -- python train.py", "pai sub -- python train.py --hidden 8", "pai list-jobs"]
COLUMNS = 96
COLOURS = {
    "31": "#f07178",
    "32": "#a5d46a",
    "33": "#ffcb6b",
    "34": "#82aaff",
    "36": "#7fdbca",
    "2": "#8a8f98",
}
LINE, LETTER, MARGIN, BAR = 19, 8.0, 18, 34


def session() -> list[str]:
    """What the terminal shows, line by line."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run(["cp", "-r", str(ROOT / "examples/quickstart"), str(home)], check=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "HOME": str(home), "PATH": path, "TERM": "xterm", "COLUMNS": str(COLUMNS)}
        env.pop("NO_COLOR", None)
        lines: list[str] = []
        try:
            for command in SESSION:
                lines.append(PROMPT + command)
                lines += typed(command, env, home / "quickstart").splitlines()
        finally:
            subprocess.run(["pai", "stop-cluster", "--now"], env=env, capture_output=True)
    return [line.replace(str(home), "~") for line in lines]


def typed(command: str, env: dict[str, str], folder: Path) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", command], env=env, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    out = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        if not data:
            break
        out += data
    process.wait()
    os.close(ours)
    return out.decode().replace("\r", "")


def drawn(lines: list[str]) -> str:
    width = int(2 * MARGIN + COLUMNS * LETTER)
    height = BAR + MARGIN + len(lines) * LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#1d2129"/>',
        *(
            f'<circle cx="{20 + i * 20}" cy="17" r="6" fill="{c}"/>'
            for i, c in enumerate(("#f07178", "#ffcb6b", "#a5d46a"))
        ),
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13.3" fill="#d6dae0">',
    ]
    for i, line in enumerate(lines):
        y = BAR + MARGIN + i * LINE
        parts.append(f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{painted(line)}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def painted(line: str) -> str:
    """A line with its colours as spans; the prompt stands back."""
    if line.startswith(PROMPT):
        command = html.escape(line[len(PROMPT) :])
        return f'<tspan fill="#8a8f98">{PROMPT}</tspan><tspan font-weight="bold">{command}</tspan>'
    out, colour = [], ""
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line[:400]):
        if piece.startswith("\x1b["):
            colour = COLOURS.get(piece[2:-1], "")
        elif piece:
            text = html.escape(piece)
            out.append(f'<tspan fill="{colour}">{text}</tspan>' if colour else text)
    return "".join(out)


if __name__ == "__main__":
    (ROOT / "docs/terminal.svg").write_text(drawn(session()))
