package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/worker/job"
)

// ParseKey reads an operation key as an argument.
func ParseKey(text string) (uuid.UUID, error) {
	key, err := job.ParseKey(text)
	switch {
	case errors.Is(err, job.ErrKeyReserved):
		return uuid.Nil, Exit(Usage, fmt.Errorf("%s is never an operation key", text))
	case err != nil:
		return uuid.Nil, Exit(Usage, fmt.Errorf("%q is not an operation key: 36 characters such as 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", short(text)))
	}
	return key, nil
}

// MaskAccount keeps the last two characters of an account, so that people can tell two apart and nobody can use it.
func MaskAccount(text string) string {
	runes := []rune(text)
	if len(runes) <= 4 {
		return strings.Repeat("*", len(runes))
	}
	return strings.Repeat("*", len(runes)-2) + string(runes[len(runes)-2:])
}

// Time prints a time in UTC; the zero time is empty.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// short keeps messages short when the argument is a whole file.
func short(text string) string {
	if len(text) > 48 {
		return text[:48] + "..."
	}
	return text
}
