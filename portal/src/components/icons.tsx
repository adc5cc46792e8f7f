// Icons of 18 pixels; decoration beside a word, so screen readers skip them.
const PATHS = {
  submit: "M9 3.5v11M3.5 9h11",
  home: "M3 8.2 9 3.2l6 5V15H11v-4H7v4H3z",
  jobs: "M3 4.5h12M3 9h12M3 13.5h12",
  cluster: "M3 3.5h12v4.5H3zM3 10h12v4.5H3zM5.5 5.8h.01M5.5 12.3h.01",
  files: "M2.5 5.5v9h13V6.5H9L7.3 4h-4.8z",
  folder: "M2.5 5.5v9h13V6.5H9L7.3 4h-4.8z",
  file: "M4.5 2.5h6l3 3v10h-9zM10.5 2.5v3h3",
  download: "M9 3v8.5M5.5 8 9 11.5 12.5 8M3.5 14.8h11",
  profile: "M9 8.5a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM3.5 15.2c.4-3 2.6-4.6 5.5-4.6s5.1 1.6 5.5 4.6",
  admin: "M9 2.8 14.5 5v4c0 3.2-2.2 5.4-5.5 6.4C5.7 14.4 3.5 12.2 3.5 9V5zM6.8 8.8l1.6 1.6 2.9-3",
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg width="18" height="18" viewBox="0 0 18 18" aria-hidden="true" fill="none" stroke="currentColor">
      <path d={PATHS[name]} stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
