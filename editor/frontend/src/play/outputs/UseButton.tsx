// The next actions for an output picture.
import { CornerUpLeft } from "lucide-react";
import { useState, type MouseEvent } from "react";
import { Button, Menu } from "../../ui/kit";
import type { Made } from "../model/types";
import { strings } from "../../strings";

/** A task that takes a picture. */
export interface Use {
  label: string;
  run: (made: Made) => void;
}

/** One use stands on the button, several are a menu. */
export function UseButton({ name, made, uses }: { name: string; made: Made; uses: readonly Use[] }) {
  const [menu, setMenu] = useState<{ x: number; y: number } | null>(null);
  const [only] = uses;
  if (!only) return null;
  if (uses.length === 1) {
    return (
      <Button kind="quiet" title={strings.play.useAsAnInputOfThis(name)} onClick={() => only.run(made)}>
        <CornerUpLeft size={13} aria-hidden /> {only.label}
      </Button>
    );
  }
  const open = (event: MouseEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    setMenu({ x: box.left, y: box.bottom });
  };
  return (
    <>
      <Button kind="quiet" title={strings.play.useAsAnInput(name)} aria-haspopup="menu" onClick={open}>
        <CornerUpLeft size={13} aria-hidden /> {strings.play.useIt}
      </Button>
      {menu && (
        <Menu
          at={menu}
          entries={uses.map((use) => ({ label: use.label, run: () => use.run(made) }))}
          onClose={() => setMenu(null)}
        />
      )}
    </>
  );
}
