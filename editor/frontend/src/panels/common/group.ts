/** Values by key, keys in the order of their first values. */
export function groupBy<K, V>(values: Iterable<V>, key: (value: V) => K): Map<K, V[]> {
  const groups = new Map<K, V[]>();
  for (const value of values) {
    const found = key(value);
    const group = groups.get(found);
    if (group) group.push(value);
    else groups.set(found, [value]);
  }
  return groups;
}
