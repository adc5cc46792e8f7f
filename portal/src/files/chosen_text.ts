// Text of a file that a user chose.
import { toast } from "../components/toasts.tsx";

/** Null if the file cannot be read, which a message says. */
export async function chosenText(file: File): Promise<string | null> {
  try {
    return await file.text();
  } catch {
    toast(`${file.name} cannot be read: check that it still exists, and choose it again.`);
    return null;
  }
}
