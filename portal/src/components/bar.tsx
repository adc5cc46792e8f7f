// How much of something is used.
export function Bar({ used, total, label }: { used: number; total: number; label: string }) {
  const share = total ? Math.min(1, used / total) : 0;
  return (
    <div class="bar" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={total} aria-valuenow={used}>
      <div style={{ width: `${share * 100}%` }} />
    </div>
  );
}
