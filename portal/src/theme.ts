// Theme: that of the system, until the user chooses one.
import { signal } from "@preact/signals";

const KEY = "pai-theme";
type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = localStorage.getItem(KEY);

export const theme = signal<Theme>(chosen === "light" || chosen === "dark" ? chosen : systemTheme());
if (chosen) apply();
system.addEventListener("change", () => {
  if (!localStorage.getItem(KEY)) theme.value = systemTheme();
});

export function toggleTheme(): void {
  theme.value = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, theme.value);
  apply();
}

function systemTheme(): Theme {
  return system.matches ? "dark" : "light";
}

function apply(): void {
  document.documentElement.dataset["theme"] = theme.value;
}
