// Data to begin with. Numbers are drawn by a small generator of our own, so that they are the same for everybody.
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const range = (n) => Array.from({ length: n }, (_, k) => k);
const round = (v) => Math.round(v * 1000) / 1000;
const noisy = (n, seed, f) => {
  const random = generator(seed);
  return range(n).map((k) => {
    const x = -2.7 + (5.4 * (k + random())) / n;
    return [round(x), round(f(x) + 0.16 * (random() + random() - 1))];
  });
};
const clouds = (seed, centres, n, spread) => {
  const random = generator(seed);
  const normal = () => random() + random() + random() - 1.5;
  return centres.flatMap(([x, y, label]) =>
    range(n).map(() => [round(x + spread * normal()), round(y + spread * normal()), label]));
};

export const examples = {
  regression: {
    "five points (Pilanci and Ergen)": [[-2, 1], [-1, -1], [0, 1], [1, 1], [2, -1]],
    "a bump": noisy(26, 1, (x) => 1.6 * Math.exp(-2 * x * x) - 0.5),
    "a wave": noisy(30, 2, (x) => 1.2 * Math.sin(2.2 * x)),
    "a step": noisy(24, 3, (x) => (x < 0.3 ? -0.8 : 0.9)),
    "one outlier": [...noisy(18, 4, (x) => 0.5 * x), [0.9, -1.8]],
  },
  classification: {
    "exclusive or": clouds(5, [[-1.3, -0.9, 0], [1.3, 0.9, 0], [-1.3, 0.9, 1], [1.3, -0.9, 1]], 7, 0.6),
    "two moons": (() => {
      const random = generator(6);
      return range(44).map((k) => {
        const t = (Math.PI * Math.floor(k / 2)) / 21, up = k % 2;
        const x = up ? 0.8 - 1.6 * Math.cos(t) : -0.8 + 1.6 * Math.cos(t), y = up ? 0.5 - 1.3 * Math.sin(t) : -0.5 + 1.3 * Math.sin(t);
        return [round(x + 0.3 * (random() - 0.5)), round(y + 0.3 * (random() - 0.5)), up];
      });
    })(),
    "a ring": (() => {
      const random = generator(7);
      return range(40).map((k) => {
        const inner = k % 2, r = inner ? 0.6 * Math.sqrt(random()) : 1.3 + 0.3 * random(), a = 2 * Math.PI * random();
        return [round(1.1 * r * Math.cos(a)), round(r * Math.sin(a)), inner];
      });
    })(),
    "three clouds": clouds(8, [[-1.4, -0.6, 0], [1.4, -0.7, 1], [0, 1, 2]], 9, 0.8),
  },
};
