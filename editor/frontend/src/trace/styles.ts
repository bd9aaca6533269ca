import gantt from "./picture/gantt.css?inline";
import side from "./side.css?inline";
import trace from "./trace.css?inline";

export const styles = [trace, gantt, side].join("\n");
