// Where the time of a request went, as one bar of shares: from its first byte to the last one of its answer.
import { useId } from "react";
import { Prose } from "../ui/kit";
import { Table } from "../ui/Table";
import { showAt, showMicros } from "./model/span";
import type { ProfileShown, ShareRow } from "./model/types";
import { strings } from "../strings";

export function ProfilePanel({ profile }: { profile: ProfileShown }) {
  const heading = useId();
  const rows = profile.shares.filter((row) => row.seconds > 0);
  const largest = rows.find((row) => row.share === profile.largest);
  return (
    <section className="wg-trace-why wg-trace-profile" aria-labelledby={heading}>
      <h3 id={heading}>{strings.trace.theRequest(showMicros(profile.seconds * 1e6))}</h3>
      <div className="shares" role="img" aria-label={rows.map(words).join(", ")}>
        {rows.map((row) => (
          <i key={row.share} className={row.share} style={{ width: `${row.part * 100}%` }} title={row.means} />
        ))}
      </div>
      <ul className="legend">
        {rows.map((row) => (
          <li key={row.share} title={row.means}>
            <i className={row.share} aria-hidden />
            {words(row)}
          </li>
        ))}
      </ul>
      {largest && (
        <p>
          <Prose text={strings.trace.theLargest(strings.trace.shares[largest.share], largest.advice)} />
        </p>
      )}
      {!profile.exact && <p className="about">{strings.trace.sharesAreEstimates}</p>}
      <details>
        <summary>{strings.trace.itsWay}</summary>
        <Table columns={[strings.trace.at, strings.trace.what]}>
          <tbody>
            {profile.moments.map((moment, index) => (
              <tr key={index}>
                <td>{showAt(moment.at * 1e6)}</td>
                <td>{moment.what}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      </details>
    </section>
  );
}

function words({ share, seconds, part }: ShareRow): string {
  return strings.trace.shareWords(strings.trace.shares[share], showMicros(seconds * 1e6), (part * 100).toFixed(1));
}
