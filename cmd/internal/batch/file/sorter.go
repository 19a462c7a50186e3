package file

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// record is what the check remembers of one row: a whole hash, or half a hash with line and number.
type record [4]uint64

const (
	recordBytes   = 32
	memoryRecords = 1 << 19 // of one sorter: 16 MiB
)

func recordOf(hash [32]byte) record {
	return record{binary.BigEndian.Uint64(hash[:]), binary.BigEndian.Uint64(hash[8:]), binary.BigEndian.Uint64(hash[16:]), binary.BigEndian.Uint64(hash[24:])}
}

func (r record) appendTo(b []byte) []byte {
	for _, word := range r {
		b = binary.BigEndian.AppendUint64(b, word)
	}
	return b
}

func compareRecords(a, b record) int {
	for i := range a {
		if a[i] != b[i] {
			return cmp.Compare(a[i], b[i])
		}
	}
	return 0
}

// sorter sorts any number of records in bounded memory: what does not fit is sorted in runs, in a file that has no name any more once it is open.
type sorter struct {
	dir     string
	limit   int
	records []record
	file    *os.File
	runs    []int64 // where each begins in the file
	size    int64
}

func newSorter(dir string, limit int) *sorter { return &sorter{dir: dir, limit: limit} }

func (s *sorter) add(r record) error {
	if len(s.records) == s.limit {
		if err := s.spill(); err != nil {
			return fmt.Errorf("sort the rows of a batch on disk: %w", err)
		}
	}
	s.records = append(s.records, r)
	return nil
}

// spill writes a sorted run.
func (s *sorter) spill() error {
	if s.file == nil {
		file, err := os.CreateTemp(s.dir, "paidonce-batch-*")
		if err != nil {
			return err
		}
		s.file = file
		_ = os.Remove(file.Name()) // where an open file can be removed, no crash leaves it behind; elsewhere close does it
	}
	slices.SortFunc(s.records, compareRecords)
	s.runs = append(s.runs, s.size)
	out := bufio.NewWriterSize(s.file, 256<<10)
	var b [recordBytes]byte
	for _, r := range s.records {
		if _, err := out.Write(r.appendTo(b[:0])); err != nil {
			return err
		}
	}
	s.size += int64(len(s.records)) * recordBytes
	s.records = s.records[:0]
	return out.Flush()
}

// visit gives all records in order. Nothing may be added any more.
func (s *sorter) visit(each func(record) error) error {
	slices.SortFunc(s.records, compareRecords)
	if s.file == nil {
		for _, r := range s.records {
			if err := each(r); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.merge(each); err != nil {
		return fmt.Errorf("sort the rows of a batch on disk: %w", err)
	}
	return nil
}

func (s *sorter) merge(each func(record) error) error {
	var h runHeap
	for i, start := range s.runs {
		end := s.size
		if i+1 < len(s.runs) {
			end = s.runs[i+1]
		}
		r := &run{in: bufio.NewReaderSize(io.NewSectionReader(s.file, start, end-start), 32<<10)}
		h = append(h, r)
	}
	h = append(h, &run{rest: s.records})
	heads := h[:0]
	for _, r := range h {
		ok, err := r.next()
		if err != nil {
			return err
		}
		if ok {
			heads = append(heads, r)
		}
	}
	h = heads
	heap.Init(&h)
	for len(h) > 0 {
		if err := each(h[0].head); err != nil {
			return err
		}
		ok, err := h[0].next()
		if err != nil {
			return err
		}
		if ok {
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	return nil
}

func (s *sorter) close() error {
	s.records = nil
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if removed := os.Remove(s.file.Name()); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// run is one sorted run, on disk or in memory.
type run struct {
	in   *bufio.Reader
	rest []record
	head record
}

func (r *run) next() (bool, error) {
	if r.in == nil {
		if len(r.rest) == 0 {
			return false, nil
		}
		r.head, r.rest = r.rest[0], r.rest[1:]
		return true, nil
	}
	var b [recordBytes]byte
	if _, err := io.ReadFull(r.in, b[:]); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	r.head = recordOf(b)
	return true, nil
}

type runHeap []*run

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return compareRecords(h[i].head, h[j].head) < 0 }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)        { *h = append(*h, x.(*run)) } //nolint:forcetypeassert // heap's own rule
func (h *runHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
