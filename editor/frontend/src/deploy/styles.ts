import css from "./deploy.css?inline";

export const styles = css;
