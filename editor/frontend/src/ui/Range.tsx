// A slider whose track is filled up to its handle, in the theme's colours.
import type { CSSProperties, InputHTMLAttributes } from "react";

type Props = Omit<InputHTMLAttributes<HTMLInputElement>, "onChange" | "type" | "value"> & {
  min: number;
  max: number;
  value: number;
  onChange: (value: number) => void;
};

export function Range({ onChange, ...rest }: Props) {
  const { min, max, value } = rest;
  const share = max > min ? Math.min(1, Math.max(0, (value - min) / (max - min))) : 0;
  return (
    <input
      {...rest}
      type="range"
      className="wg-play-range"
      style={{ "--filled": `${share * 100}%` } as CSSProperties}
      onChange={(event) => onChange(Number(event.target.value))}
    />
  );
}
