// @ts-check
// Multiplies vectors by matrices, which takes most of a model's time. Sums are in double precision.

/** A linear layer: a bias, and a matrix of `rows` × `columns` stored row after row. */
export class Linear {
  /**
   * @param {Float32Array} weight
   * @param {Float32Array | undefined} bias
   * @param {number} columns
   */
  constructor(weight, bias, columns) {
    this.weight = weight;
    this.bias = bias;
    this.columns = columns;
    this.rows = weight.length / columns;
  }

  /**
   * (count, columns) -> (count, rows), two vectors at once, so that a weight is read once for both.
   * @param {Float32Array} x
   * @param {number} count
   */
  apply(x, count) {
    const { columns, rows, weight, bias } = this;
    const out = new Float32Array(count * rows);
    const last = count - 1;
    for (let n = 0; n < last; n += 2) multiplyTwo(weight, columns, rows, x, n, out);
    if (count % 2) multiply(weight, 0, columns, columns, rows, x, last * columns, out, last * rows);
    for (let n = 0; bias && n < count; n++) {
      for (let row = 0; row < rows; row++) out[n * rows + row] += bias[row];
    }
    return out;
  }
}

/**
 * Multiplies a vector by a matrix whose first row begins at weight[first], and whose rows begin `stride`
 * numbers apart. It adds up four rows at once, because a processor can add four sums in parallel.
 * @param {Float32Array} weight
 * @param {number} first
 * @param {number} stride
 * @param {number} columns
 * @param {number} rows
 * @param {Float32Array} x has the vector
 * @param {number} from where the vector begins
 * @param {Float32Array} out gets the result
 * @param {number} to where the result begins
 */
export function multiply(weight, first, stride, columns, rows, x, from, out, to) {
  const end = from + columns;
  let row = 0;
  for (; row + 4 <= rows; row += 4) {
    let a = first + row * stride, b = a + stride, c = b + stride, d = c + stride;
    let sumA = 0, sumB = 0, sumC = 0, sumD = 0;
    for (let i = from; i < end; i++) {
      const value = x[i];
      sumA += weight[a++] * value;
      sumB += weight[b++] * value;
      sumC += weight[c++] * value;
      sumD += weight[d++] * value;
    }
    out[to + row] = sumA;
    out[to + row + 1] = sumB;
    out[to + row + 2] = sumC;
    out[to + row + 3] = sumD;
  }
  for (; row < rows; row++) {
    out[to + row] = dot(weight, first + row * stride, x, from, columns);
  }
}

/**
 * Multiplies the vectors n and n + 1 of x by a matrix, and puts the results into out.
 * @param {Float32Array} weight
 * @param {number} columns
 * @param {number} rows
 * @param {Float32Array} x
 * @param {number} n
 * @param {Float32Array} out
 */
function multiplyTwo(weight, columns, rows, x, n, out) {
  const from = n * columns, end = from + columns, to = n * rows, next = to + rows;
  let row = 0;
  for (; row + 4 <= rows; row += 4) {
    let a = row * columns, b = a + columns, c = b + columns, d = c + columns, j = end;
    let sumA = 0, sumB = 0, sumC = 0, sumD = 0, nextA = 0, nextB = 0, nextC = 0, nextD = 0;
    for (let i = from; i < end; i++) {
      const value = x[i], other = x[j++];
      const inA = weight[a++], inB = weight[b++], inC = weight[c++], inD = weight[d++];
      sumA += inA * value;
      sumB += inB * value;
      sumC += inC * value;
      sumD += inD * value;
      nextA += inA * other;
      nextB += inB * other;
      nextC += inC * other;
      nextD += inD * other;
    }
    out.set([sumA, sumB, sumC, sumD], to + row);
    out.set([nextA, nextB, nextC, nextD], next + row);
  }
  for (; row < rows; row++) {
    out[to + row] = dot(weight, row * columns, x, from, columns);
    out[next + row] = dot(weight, row * columns, x, end, columns);
  }
}

/**
 * The dot product of two vectors of `count` numbers, which begin at a[at] and b[from].
 * @param {ArrayLike<number>} a
 * @param {number} at
 * @param {ArrayLike<number>} b
 * @param {number} from
 * @param {number} count
 */
export function dot(a, at, b, from, count) {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += a[at + i] * b[from + i];
  return sum;
}
