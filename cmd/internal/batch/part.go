package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
)

// item is one row of a part: what the ledger and the report need of it, with its key.
type item struct {
	n, line   int
	key       uuid.UUID
	print     ledger.Fingerprint
	route     string
	debtor    string
	amount    money.Amount
	notBefore time.Time
	notAfter  time.Time
	rowRef    string
	payload   []byte
}

// partForm is the first byte of a part, for the day on which there is another form.
const partForm = 1

// maxPart bounds what a part may unpack to.
const maxPart = 1 << 30

var errPart = errors.New("a part is damaged")

// packer packs items into parts. It is for one goroutine.
type packer struct {
	encoder *zstd.Encoder
	raw     []byte
}

func newPacker() (*packer, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("make a packer: %w", err)
	}
	return &packer{encoder: encoder}, nil
}

func (p *packer) pack(items []item) []byte {
	b := append(p.raw[:0], partForm)
	for i := range items {
		b = items[i].append(b)
	}
	p.raw = b
	return p.encoder.EncodeAll(b, nil)
}

func (i *item) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(i.n))    //nolint:gosec // from 1
	b = binary.AppendUvarint(b, uint64(i.line)) //nolint:gosec // from 1
	b = append(b, i.key[:]...)
	b = binary.AppendVarint(b, int64(i.print.Version))
	b = append(b, i.print.Sum[:]...)
	b = appendText(b, i.route)
	b = appendText(b, i.debtor)
	b = binary.AppendVarint(b, i.amount.Minor)
	b = appendText(b, i.amount.Currency)
	b = appendTime(b, i.notBefore)
	b = appendTime(b, i.notAfter)
	b = appendText(b, i.rowRef)
	return appendText(b, i.payload)
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendTime writes microseconds, which is what the ledger keeps; the payload has all of it. Nothing for a job is before 2000.
func appendTime(b []byte, at time.Time) []byte {
	if at.IsZero() {
		return binary.AppendVarint(b, 0)
	}
	return binary.AppendVarint(b, at.UnixMicro())
}

// unpacker is safe for concurrent use.
type unpacker struct{ decoder *zstd.Decoder }

func newUnpacker() (*unpacker, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPart))
	if err != nil {
		return nil, fmt.Errorf("make an unpacker: %w", err)
	}
	return &unpacker{decoder: decoder}, nil
}

// unpack gives the items of a part, which share memory.
func (u *unpacker) unpack(body []byte, rows int) ([]item, error) {
	raw, err := u.decoder.DecodeAll(body, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPart, err)
	}
	if len(raw) == 0 || raw[0] != partForm {
		return nil, fmt.Errorf("%w, or packed by a newer program", errPart)
	}
	r := cursor{b: raw[1:]}
	items := make([]item, 0, rows)
	for len(r.b) > 0 && !r.failed {
		items = append(items, r.item())
	}
	if r.failed || len(items) != rows {
		return nil, errPart
	}
	return items, nil
}

// cursor reads what append wrote.
type cursor struct {
	b      []byte
	failed bool
}

func (c *cursor) item() (i item) {
	i.n, i.line = int(c.uvarint()), int(c.uvarint()) //nolint:gosec // written from int
	copy(i.key[:], c.take(len(i.key)))
	i.print.Version = int16(c.varint()) //nolint:gosec // written from int16
	copy(i.print.Sum[:], c.take(len(i.print.Sum)))
	i.route, i.debtor = string(c.text()), string(c.text())
	i.amount.Minor = c.varint()
	i.amount.Currency = string(c.text())
	i.notBefore, i.notAfter = c.time(), c.time()
	i.rowRef = string(c.text())
	i.payload = c.text()
	return i
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	c.skip(n)
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	c.skip(n)
	return v
}

func (c *cursor) skip(n int) {
	if n <= 0 {
		c.failed, c.b = true, nil
		return
	}
	c.b = c.b[n:]
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.failed, c.b = true, nil
		return nil
	}
	taken := c.b[:n:n]
	c.b = c.b[n:]
	return taken
}

func (c *cursor) text() []byte {
	n := c.uvarint()
	if n > uint64(len(c.b)) {
		c.failed, c.b = true, nil
		return nil
	}
	return c.take(int(n)) //nolint:gosec // at most what is left
}

func (c *cursor) time() time.Time {
	micro := c.varint()
	if micro == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micro).UTC()
}
