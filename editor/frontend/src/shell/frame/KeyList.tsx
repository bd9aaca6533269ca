// All keys; those of the shell can be changed here.
import { RotateCcw } from "lucide-react";
import { useState, type KeyboardEvent } from "react";
import { CANVAS_KEYS } from "../../canvas/keyboard";
import { Button, IconButton } from "../../ui/kit";
import { BINDINGS, chordOf, shown, taken, type Binding } from "../../ui/keys";
import { setKeys, useKeys } from "../../store/preferences";
import { strings } from "../../strings";

const GROUPS = ["Document", "Run", "View"] as const;

export function KeyList() {
  return (
    <div className="wg-sheet">
      {GROUPS.map((group) => (
        <section key={group} aria-label={group}>
          <h3>{group}</h3>
          <dl>
            {BINDINGS.filter((binding) => binding.group === group).map((binding) => (
              <Own key={binding.action} binding={binding} />
            ))}
          </dl>
        </section>
      ))}
      <section aria-label={strings.shell.canvas}>
        <h3>{strings.shell.canvas}</h3>
        <dl>
          {CANVAS_KEYS.map((row) => (
            <div key={row.label} className="row">
              <dt>{row.label}</dt>
              <dd>
                {row.keys.map((chord) => (
                  <kbd key={chord}>{shown(chord)}</kbd>
                ))}
              </dd>
            </div>
          ))}
        </dl>
      </section>
    </div>
  );
}

function Own({ binding }: { binding: Binding }) {
  const overrides = useKeys();
  const [asking, ask] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const { action, label } = binding;
  const keys = overrides[action] ?? binding.keys;
  const take = (event: KeyboardEvent) => {
    const chord = chordOf(event);
    event.preventDefault();
    event.stopPropagation();
    if (chord === null) return;
    if (chord === "Escape") return ask(false);
    const other = taken(chord, action, overrides);
    if (other) return setProblem(strings.shell.isAlreadyPressOtherKeys(shown(chord), other.label));
    setKeys({ ...overrides, [action]: [chord] });
    setProblem(null);
    ask(false);
  };
  const reset = () => {
    const { [action]: _own, ...others } = overrides;
    setKeys(others);
  };
  return (
    <div className="row">
      <dt>
        {label}
        {problem && asking && <small role="alert">{problem}</small>}
      </dt>
      <dd>
        {overrides[action] && (
          <IconButton label={strings.shell.resetTheKeys(label)} onClick={reset}>
            <RotateCcw size={12} />
          </IconButton>
        )}
        {asking ? (
          <Button autoFocus onKeyDown={take} onBlur={() => ask(false)}>
            {strings.shell.pressKeys}
          </Button>
        ) : (
          <Button kind="quiet" aria-label={strings.shell.changeTheKeys(label)} onClick={() => ask(true)}>
            {keys.map((chord) => (
              <kbd key={chord}>{shown(chord)}</kbd>
            ))}
          </Button>
        )}
      </dd>
    </div>
  );
}
