// Fields for the settings of plots: of all of them, or of one.
import { useId } from "preact/hooks";
import { MAX_SMOOTHING, type Best, type PlotSettings, type SomeSettings } from "../plot/plot_settings.ts";

interface Props {
  readonly settings: PlotSettings;
  readonly onChange: (changes: SomeSettings) => void;
  /** Smoothing while it is dragged; then `onChange` has it. */
  readonly onPreview?: (smoothing: number) => void;
  /** With a part of the axis. */
  readonly hasRange?: boolean;
  /** With the choice of the best value. */
  readonly hasBest?: boolean;
}

const NO_SMOOTHING = "off";

export function PlotFields({ settings, onChange, onPreview, hasRange = false, hasBest = false }: Props) {
  const smoothingId = useId();
  return (
    <div class="plot-fields">
      <label>
        <span>Over</span>
        <select
          aria-label="Over steps or time"
          value={settings.isTime ? "time" : "step"}
          // A part of the steps is no part of the time.
          onChange={({ currentTarget }) => onChange({ isTime: currentTarget.value === "time", from: NaN, to: NaN })}
        >
          <option value="step">steps</option>
          <option value="time">time</option>
        </select>
      </label>
      <Check label="Logarithmic y axis" isOn={settings.isLogY} onChange={(isLogY) => onChange({ isLogY })} />
      <Check label="Logarithmic x axis" isOn={settings.isLogX} isDisabled={settings.isTime} onChange={(isLogX) => onChange({ isLogX })} />
      <Check label="From 0" isOn={settings.isFromZero} isDisabled={settings.isLogY} onChange={(isFromZero) => onChange({ isFromZero })} />
      <label for={smoothingId}>
        <span>Smoothing</span>
        <input
          id={smoothingId}
          type="range"
          min="0"
          max={String(MAX_SMOOTHING)}
          step="0.01"
          value={String(settings.smoothing)}
          onInput={({ currentTarget }) => onPreview?.(Number(currentTarget.value))}
          onChange={({ currentTarget }) => onChange({ smoothing: Number(currentTarget.value) })}
        />
        <output class="quiet" for={smoothingId}>
          {settings.smoothing === 0 ? NO_SMOOTHING : settings.smoothing.toFixed(2)}
        </output>
      </label>
      {hasBest && (
        <label>
          <span>Best</span>
          <select
            aria-label="Best value"
            value={settings.best}
            onChange={({ currentTarget }) => onChange({ best: currentTarget.value as Best })}
          >
            <option value="lowest">lowest</option>
            <option value="highest">highest</option>
            <option value="none">not marked</option>
          </select>
        </label>
      )}
      {hasRange && !settings.isTime && (
        <>
          <StepField label="From step" value={settings.from} onChange={(from) => onChange({ from })} />
          <StepField label="To step" value={settings.to} onChange={(to) => onChange({ to })} />
        </>
      )}
    </div>
  );
}

interface CheckProps {
  readonly label: string;
  readonly isOn: boolean;
  readonly isDisabled?: boolean;
  readonly onChange: (isOn: boolean) => void;
}

function Check({ label, isOn, isDisabled = false, onChange }: CheckProps) {
  return (
    <label>
      <input type="checkbox" checked={isOn} disabled={isDisabled} onChange={({ currentTarget }) => onChange(currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

function StepField({ label, value, onChange }: { label: string; value: number; onChange: (value: number) => void }) {
  return (
    <label>
      <span>{label}</span>
      <input
        type="number"
        step="any"
        class="step"
        value={Number.isNaN(value) ? "" : String(value)}
        onChange={({ currentTarget }) => onChange(currentTarget.value === "" ? NaN : currentTarget.valueAsNumber)}
      />
    </label>
  );
}
