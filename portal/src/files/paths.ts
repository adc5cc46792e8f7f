// Paths on a storage: absolute, without a slash at the end, `/` for its root.

/** Names of the folders and of the entry itself, from the root. */
export function namesOf(path: string): string[] {
  return path.split("/").filter((name) => name !== "");
}

/** A path as a job may name it, without slashes at its end. */
export function withoutSlashesAtEnd(path: string): string {
  // A pattern would count the slashes of a long run again from each of them.
  let end = path.length;
  while (end && path[end - 1] === "/") end -= 1;
  return path.slice(0, end);
}

export function join(folder: string, name: string): string {
  return folder === "/" ? `/${name}` : `${folder}/${name}`;
}

export function parentOf(path: string): string {
  return `/${namesOf(path).slice(0, -1).join("/")}`;
}

/** Whether an entry is in a folder, or in one of its folders. */
export function isBelow(path: string, folder: string): boolean {
  return path.startsWith(join(folder, ""));
}

export function baseName(path: string): string {
  return namesOf(path).at(-1) ?? "";
}

/** A path as a user types it: relative ones are below `folder`; `.` and `..` mean what they mean in a shell. */
export function resolve(typed: string, folder: string): string {
  const names = typed.startsWith("/") ? [] : namesOf(folder);
  for (const name of namesOf(typed)) {
    if (name === "..") names.pop();
    else if (name !== ".") names.push(name);
  }
  return `/${names.join("/")}`;
}

/** The path in an address: names are escaped, slashes are not. */
export function encodePath(path: string): string {
  return (
    namesOf(path)
      .map((name) => `/${encodeURIComponent(name)}`)
      .join("") || "/"
  );
}

/** The path in an address, which a user may have edited. */
export function decodePath(text: string): string {
  return `/${namesOf(text).map(decodeName).join("/")}`;
}

function decodeName(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What is wrong with a name for a new entry; empty if nothing is. */
export function nameProblem(name: string): string {
  if (!name.trim()) return "Enter a name.";
  if (name.includes("/")) return "A name has no slash.";
  if (name === "." || name === "..") return "This name means a folder above.";
  return "";
}

/** Ending of a file's name, in small letters and without the dot. */
export function endingOf(name: string): string {
  const at = name.lastIndexOf(".");
  return at > 0 ? name.slice(at + 1).toLowerCase() : "";
}
