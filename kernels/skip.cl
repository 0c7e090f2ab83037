// skip.cl: the rows that a probe leaves out. It is put in front of the kernels that scan.
//
//   skip_offsets      [probe_count + 1], skip_ranges [skip_offsets[probe_count]]: probe p leaves out the rows in the half-open
//            ranges skip_ranges[skip_offsets[p]] .. skip_ranges[skip_offsets[p + 1] - 1], which ascend and are disjoint; rows
//            are numbered as in the whole gallery

// Whether `row` lies in one of the ranges begin .. end - 1.
bool is_skipped(__global const uint2 *ranges, uint begin, uint end, const uint row)
{
    while (begin < end) {
        const uint middle = begin + (end - begin) / 2;
        const uint2 range = ranges[middle];
        if (row < range.x) {
            end = middle;
        } else if (row >= range.y) {
            begin = middle + 1;
        } else {
            return true;
        }
    }
    return false;
}
