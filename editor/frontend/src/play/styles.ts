import css from "./play.css?inline";

export const styles = css;
