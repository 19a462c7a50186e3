package job

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/google/uuid"
)

// What ParseKey refuses.
var (
	ErrKeyForm     = errors.New("key is not a UUID in its 36 character form")
	ErrKeyReserved = errors.New("key is the nil or the max UUID")
)

// NewKey makes an operation key. Its version is 7: keys made one after the other stand near each other in the index.
func NewKey() uuid.UUID {
	return uuid.Must(uuid.NewV7())
}

// ParseKey reads an operation key: any UUID but nil and max, in the form with hyphens, in any case. The key's String is
// the canonical lower-case form.
func ParseKey(text string) (uuid.UUID, error) {
	if len(text) != 36 {
		return uuid.UUID{}, ErrKeyForm // uuid.Parse knows more spellings; each would be one more way to write the same key
	}
	key, err := uuid.Parse(text)
	if err != nil {
		return uuid.UUID{}, ErrKeyForm // without its error, which quotes the text
	}
	if key == uuid.Nil || key == uuid.Max {
		return uuid.UUID{}, ErrKeyReserved
	}
	return key, nil
}

// Subject is the JetStream subject of jobs from a source for a route.
func Subject(route, source string) string {
	return "withdrawals.jobs." + route + "." + source
}

// MsgID is the value of the Nats-Msg-Id header. It covers the payload, because the key alone would let the broker swallow
// a second job with the same key and another payload, and nobody would learn of the conflict.
func MsgID(source string, key uuid.UUID, payload []byte) string {
	sum := sha256.Sum256(payload)
	return source + ":" + key.String() + ":" + hex.EncodeToString(sum[:8])
}

// ValidName says whether a source or route has a possible name: [a-z0-9][a-z0-9_-]{0,62}. Such a name is one token of a
// subject and needs no escape in a path, a label or an account name.
func ValidName(name string) bool {
	if name == "" || len(name) > 63 || name[0] == '_' || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
