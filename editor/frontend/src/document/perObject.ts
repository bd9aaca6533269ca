// Caches derived values for as long as their object lives; documents never change in place. Pure.

export function perObject<K extends object, V>(derive: (object: K) => V): (object: K) => V {
  const known = new WeakMap<K, { value: V }>();
  return (object) => {
    const found = known.get(object);
    if (found) return found.value;
    const value = derive(object);
    known.set(object, { value });
    return value;
  };
}
