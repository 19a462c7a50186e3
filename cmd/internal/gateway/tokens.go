package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

const (
	// minToken is the least length of a token, in bytes: shorter ones are guessed.
	minToken = 16
	// digestPrefix begins what stands for a token in a file that does not hold it: its SHA-256, in hexadecimal digits. Presented as a token it
	// is one like any other, and opens nothing.
	digestPrefix = "sha256:"
)

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

// NewTokens takes the tokens of each source, each as it is presented, or as sha256: and its digest.
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
			digest, err := digestOf(token)
			sum := t.salted(digest)
			switch other, taken := owner[sum]; {
			case err != nil:
				errs = append(errs, fmt.Errorf("source %s: %w", source, err))
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

// digestOf reads one line of a source's tokens.
func digestOf(line string) (digest [32]byte, err error) {
	text, hashed := strings.CutPrefix(line, digestPrefix)
	switch {
	case !hashed && len(line) < minToken:
		return digest, fmt.Errorf("a token is shorter than %d characters", minToken)
	case !hashed:
		return sha256.Sum256([]byte(line)), nil
	}
	if n, err := hex.Decode(digest[:], []byte(text[:min(len(text), 2*len(digest))])); err != nil || n != len(digest) || len(text) != 2*len(digest) {
		return digest, fmt.Errorf("%s is not followed by %d hexadecimal digits", digestPrefix, 2*len(digest))
	}
	return digest, nil
}

func (t *Tokens) salted(digest [32]byte) [32]byte {
	return sha256.Sum256(append(t.salt[:len(t.salt):len(t.salt)], digest[:]...))
}

// Source finds the source of a token. It looks at every hash, whatever it finds.
func (t *Tokens) Source(token string) (string, bool) {
	sum := t.salted(sha256.Sum256([]byte(token)))
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
