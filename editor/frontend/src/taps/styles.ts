import css from "./taps.css?inline";

export const styles = css;
