package banksim

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"sync"
	"time"
)

const shardCount = 128

// change is a state that a transfer takes later on its own.
type change struct {
	At     int64  `json:"at"`
	Status string `json:"status"`
	Code   string `json:"code,omitzero"`
}

// transfer is what the bank holds of one accepted instruction. moved tells whether it is an execution, that is
// whether money left; a transfer created in a rejected state is none.
type transfer struct {
	run, seq  uint32
	at        int64
	visibleAt int64
	key       string
	scope     uint64
	body      []byte
	fields
	moved bool

	mu     sync.Mutex
	status string
	code   string
	later  []change
}

const idPrefix = "tr_"

func (t *transfer) appendID(to []byte) []byte {
	const hex = "0123456789abcdef"
	to = append(to, idPrefix...)
	word := uint64(t.run)<<32 | uint64(t.seq)
	for shift := 60; shift >= 0; shift -= 4 {
		to = append(to, hex[word>>shift&15])
	}
	return to
}

func (t *transfer) id() string { return string(t.appendID(nil)) }

// stateAt applies what has come due and tells the state.
func (t *transfer) stateAt(now time.Time) (status, code string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.later) > 0 && t.later[0].At <= now.UnixNano() {
		t.status, t.code = t.later[0].Status, t.later[0].Code
		t.later = t.later[1:]
	}
	return t.status, t.code
}

func (t *transfer) setState(status, code string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status, t.code, t.later = status, code, nil
}

// account is everything the bank and its oracle know of one partner key.
type account struct {
	key              string
	creates, lookUps uint32
	requests         []entry
	transfers        []*transfer
	records          []*record
}

type shard struct {
	mu       sync.Mutex
	accounts map[string]*account
}

// store keeps accounts by partner key, and all transfers in the order of their creation.
type store struct {
	shards [shardCount]shard

	mu  sync.RWMutex
	run uint32
	all []*transfer
}

func newStore(run uint32) *store {
	s := &store{run: run}
	for i := range s.shards {
		s.shards[i].accounts = make(map[string]*account)
	}
	return s
}

func (s *store) shard(key string) *shard {
	return &s.shards[hashText(offset64, key)%shardCount]
}

// with runs f on the account of the key, made if missing, under its lock.
func (s *store) with(key string, f func(*account)) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	a := sh.accounts[key]
	if a == nil {
		a = &account{key: key}
		sh.accounts[key] = a
	}
	f(a)
}

// look runs f on the account of the key under its lock; false when there is none.
func (s *store) look(key string, f func(*account)) bool {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	a := sh.accounts[key]
	if a == nil {
		return false
	}
	f(a)
	return true
}

// add gives the transfer its place in the order of all.
func (s *store) add(t *transfer, now func() time.Time) {
	s.mu.Lock()
	t.run, t.seq = s.run, uint32(len(s.all))
	t.at = now().UnixNano()
	s.all = append(s.all, t)
	s.mu.Unlock()
}

// restore puts a remembered transfer back with the id that it had.
func (s *store) restore(t *transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.all) <= int(t.seq) { // lines of one moment may be out of order, or the last ones lost
		s.all = append(s.all, nil)
	}
	s.all[t.seq] = t
}

func (s *store) byID(id string) *transfer {
	if len(id) != len(idPrefix)+16 || id[:len(idPrefix)] != idPrefix {
		return nil
	}
	word, err := strconv.ParseUint(id[len(idPrefix):], 16, 64)
	if err != nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	seq := uint32(word)
	if int(seq) >= len(s.all) || s.all[seq] == nil || s.all[seq].run != uint32(word>>32) {
		return nil
	}
	return s.all[seq]
}

// page returns a stable view of the transfers from a place on; appends never change it.
func (s *store) page(from int) []*transfer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if from < 0 || from > len(s.all) {
		from = len(s.all)
	}
	return s.all[from:len(s.all):len(s.all)]
}

// bodyHash recognises the same body under the same key; it outlives a restart.
func bodyHash(body []byte) [16]byte {
	sum := sha256.Sum256(body)
	return [16]byte(sum[:16])
}

const (
	offset64 = 14695981039346656037
	prime64  = 1099511628211
)

func hashText(h uint64, text string) uint64 {
	for i := 0; i < len(text); i++ {
		h = (h ^ uint64(text[i])) * prime64
	}
	return h
}

func hashWord(h, word uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], word)
	for _, c := range b {
		h = (h ^ uint64(c)) * prime64
	}
	return h
}

// mix spreads a hash over all bits (splitmix64).
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
