package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
)

// minToken is the least length of a token, in bytes: shorter ones are guessed.
const minToken = 16

// Tokens knows which source a bearer token belongs to. It keeps salted hashes, never a token. A source may have several tokens, so that a
// new one can be handed out before the old one is taken away.
type Tokens struct {
	salt  [32]byte
	known atomic.Pointer[[]tokenEntry]
}

type tokenEntry struct {
	source string
	sum    [32]byte
}

// NewTokens takes the tokens of each source.
func NewTokens(bySource map[string][]string) (*Tokens, error) {
	t := &Tokens{}
	_, _ = rand.Read(t.salt[:]) // it never fails, and says so
	return t, t.Replace(bySource)
}

// Replace puts other tokens in place of all before. On an error the old ones stay.
func (t *Tokens) Replace(bySource map[string][]string) error {
	var entries []tokenEntry
	var errs []error
	owner := map[[32]byte]string{}
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		for _, token := range bySource[source] {
			sum := t.hash(token)
			switch other, taken := owner[sum]; {
			case len(token) < minToken:
				errs = append(errs, fmt.Errorf("source %s: a token is shorter than %d characters", source, minToken))
			case taken && other != source:
				errs = append(errs, fmt.Errorf("sources %s and %s have the same token", other, source))
			default:
				owner[sum] = source
				entries = append(entries, tokenEntry{source, sum})
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	t.known.Store(&entries)
	return nil
}

func (t *Tokens) hash(token string) [32]byte {
	return sha256.Sum256(append(t.salt[:len(t.salt):len(t.salt)], token...))
}

// Source finds the source of a token. It looks at every hash, whatever it finds.
func (t *Tokens) Source(token string) (string, bool) {
	sum := t.hash(token)
	found := -1
	entries := *t.known.Load()
	for i := range entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], entries[i].sum[:]), i, found)
	}
	if found < 0 {
		return "", false
	}
	return entries[found].source, true
}
