package prove

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

const (
	keysPerPart = 20_000 // about what one part holds in memory at a time
	fewestParts = 8
	mostParts   = 2048
	allBuffers  = 8 << 20 // of one spill, over all parts
	mostBuffer  = 64 << 10
	leastBuffer = 2 << 10
)

// id is what records are brought together by: an operation key, or a hash.
type id [16]byte

// spill keeps records on disk in parts, by a hash of their id. Records with the same id are in the same part. No file stays open.
type spill struct {
	dir     string
	buffers [][]byte
	limit   int
}

// partsFor is how many parts a ledger of so many operations needs.
func partsFor(operations int64) int {
	return int(min(max(operations/keysPerPart, fewestParts), mostParts))
}

func newSpill(dir, name string, parts int) (*spill, error) {
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make room for %s: %w", name, err)
	}
	return &spill{dir: dir, buffers: make([][]byte, parts), limit: min(max(allBuffers/parts, leastBuffer), mostBuffer)}, nil
}

// add keeps one record. The body is copied.
func (s *spill) add(of id, body []byte) error {
	part := s.part(of)
	buffer := s.buffers[part]
	if buffer == nil {
		buffer = make([]byte, 0, s.limit)
	}
	if len(buffer)+len(of)+binary.MaxVarintLen64+len(body) > cap(buffer) && len(buffer) > 0 {
		if err := s.flush(part, buffer); err != nil {
			return err
		}
		buffer = buffer[:0]
	}
	buffer = append(buffer, of[:]...)
	buffer = binary.AppendUvarint(buffer, uint64(len(body)))
	s.buffers[part] = append(buffer, body...)
	return nil
}

// part spreads ids evenly, whatever their makers put into them (splitmix64).
func (s *spill) part(of id) int {
	z := binary.LittleEndian.Uint64(of[:8])*0x9e3779b97f4a7c15 + binary.LittleEndian.Uint64(of[8:])
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(len(s.buffers)))
}

func (s *spill) file(part int) string { return filepath.Join(s.dir, strconv.Itoa(part)) }

func (s *spill) flush(part int, buffer []byte) error {
	f, err := os.OpenFile(s.file(part), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("spill: %w", err)
	}
	_, err = f.Write(buffer)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("spill: %w", err)
	}
	return nil
}

// groups visits every id with all of its records, part by part, each in the order in which they were added, and removes what it has
// visited. Nothing may be added any more. The records are valid during the visit only.
func (s *spill) groups(visit func(of id, records [][]byte) error) error {
	var raw []byte
	var index []place
	var records [][]byte
	for part := range s.buffers {
		var err error
		if raw, err = s.read(part, raw[:0]); err != nil {
			return err
		}
		if index, err = indexOf(raw, index[:0]); err != nil {
			return err
		}
		slices.SortStableFunc(index, func(a, b place) int { return compareIDs(a.of(raw), b.of(raw)) })
		for start := 0; start < len(index); {
			of := index[start].of(raw)
			records = records[:0]
			for ; start < len(index) && index[start].of(raw) == of; start++ {
				records = append(records, raw[index[start].body:index[start].end])
			}
			if err := visit(of, records); err != nil {
				return err
			}
		}
		if err := os.Remove(s.file(part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a visited part: %w", err)
		}
	}
	return nil
}

// place is where a record lies in a part.
type place struct{ id, body, end uint32 }

func (p place) of(raw []byte) id { return id(raw[p.id : p.id+16]) }

func compareIDs(a, b id) int {
	for i := range a {
		if a[i] != b[i] {
			return int(a[i]) - int(b[i])
		}
	}
	return 0
}

// read appends one part, what is still in memory included.
func (s *spill) read(part int, to []byte) ([]byte, error) {
	f, err := os.Open(s.file(part))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read a part: %w", err)
	default:
		info, err := f.Stat()
		if err == nil && info.Size() > 1<<32-1-mostBuffer {
			err = errors.New("it is larger than 4 GiB")
		}
		if err == nil {
			to = slices.Grow(to, int(info.Size())+len(s.buffers[part]))
			var n int
			n, err = f.Read(to[len(to) : len(to)+int(info.Size())])
			to = to[:len(to)+n]
			if err == nil && n < int(info.Size()) {
				err = errors.New("it is cut short")
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("read a part: %w", err)
		}
	}
	to = append(to, s.buffers[part]...)
	s.buffers[part] = nil
	return to, nil
}

func indexOf(raw []byte, index []place) ([]place, error) {
	for at := 0; at < len(raw); {
		if len(raw)-at < 17 {
			return nil, errors.New("read a part: a record is cut short")
		}
		length, n := binary.Uvarint(raw[at+16:])
		body := at + 16 + n
		if n <= 0 || uint64(len(raw)-body) < length {
			return nil, errors.New("read a part: a record is cut short")
		}
		index = append(index, place{uint32(at), uint32(body), uint32(body + int(length))}) //nolint:gosec // a part is smaller than 4 GiB
		at = body + int(length)                                                            //nolint:gosec // checked above
	}
	return index, nil
}

// A record's body is written and read field by field, in the same order.
type fields []byte

func (f fields) byte(b byte) fields    { return append(f, b) }
func (f fields) number(n int64) fields { return binary.AppendVarint(f, n) }
func (f fields) bytes(b []byte) fields { return append(f, b...) }
func (f fields) text(s string) fields  { return append(binary.AppendUvarint(f, uint64(len(s))), s...) }
func (f fields) boolean(b bool) fields {
	if b {
		return append(f, 1)
	}
	return append(f, 0)
}

// reader reads a body. What it reads was written by this process, so a body that ends early is a mistake of this package.
type reader []byte

func (r *reader) byte() byte {
	b := (*r)[0]
	*r = (*r)[1:]
	return b
}

func (r *reader) boolean() bool { return r.byte() == 1 }

func (r *reader) number() int64 {
	n, width := binary.Varint(*r)
	*r = (*r)[width:]
	return n
}

func (r *reader) text() string {
	length, width := binary.Uvarint(*r)
	s := string((*r)[width : width+int(length)]) //nolint:gosec // as written
	*r = (*r)[width+int(length):]                //nolint:gosec // as written
	return s
}

func (r *reader) id() id {
	of := id((*r)[:16])
	*r = (*r)[16:]
	return of
}
