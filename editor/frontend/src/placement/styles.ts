import css from "./placement.css?inline";

export const styles = css;
