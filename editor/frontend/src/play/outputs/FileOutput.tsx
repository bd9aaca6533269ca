// Files among the outputs of a run, which are saved rather than shown.
import { Download, FileArchive } from "lucide-react";
import { Button } from "../../ui/kit";
import { showBytes } from "../../ui/words";
import { strings } from "../../strings";
import { labelOf } from "../model/form";
import { suffixOf } from "../model/suffixes";
import type { Made, OutputShown } from "../model/types";

/** A file that nothing here can show: its name, its size, and a press that saves it. */
export function FileOutput({
  output,
  onSave,
}: {
  output: OutputShown;
  onSave: (output: OutputShown, made: Made) => void;
}) {
  return (
    <section className="wg-play-output" aria-label={labelOf(output.name)}>
      <header>
        <h3>{labelOf(output.name)}</h3>
      </header>
      <ul className="files">
        {output.made.map((made, index) => {
          const number = output.made.length > 1 ? `-${index + 1}` : "";
          const name = `${output.name}${number}${suffixOf(made.value.mime ?? "")}`;
          return (
            <li key={index}>
              <FileArchive size={16} aria-hidden />
              <span className="about">
                {name} · {showBytes(bytesIn(made.value.data ?? ""))}
              </span>
              <Button onClick={() => onSave(output, made)} aria-label={strings.play.download(name)}>
                <Download size={14} aria-hidden /> {strings.play.saveFile}
              </Button>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

/** Bytes that base64 stands for. */
function bytesIn(data: string): number {
  return Math.floor((data.length * 3) / 4) - (data.endsWith("==") ? 2 : data.endsWith("=") ? 1 : 0);
}
