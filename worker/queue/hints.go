package queue

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// recordedSubject is where hints go. No stream keeps them.
const recordedSubject = "withdrawals.recorded"

// mostHints is how many keys one message carries.
const mostHints = 1000

// Hints tell whoever waits for an outcome whose row to read again: the keys of what was recorded, sixteen bytes each, and nothing of what. They
// are sent once and kept nowhere; a hint that is lost costs its reader a little time. An outcome itself is published from the outbox only.
type Hints struct {
	nc      *nats.Conn
	log     zerolog.Logger
	refused atomic.Bool
}

// NewHints uses a connection of a worker.
func NewHints(nc *nats.Conn, log zerolog.Logger) *Hints { return &Hints{nc: nc, log: log} }

// Say sends the keys, or does nothing while the broker is away. It does not wait for the broker.
func (h *Hints) Say(keys []uuid.UUID) {
	if len(keys) == 0 || h.refused.Load() || !h.nc.IsConnected() {
		return
	}
	if err := h.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), recordedSubject) {
		if !h.refused.Swap(true) {
			h.log.Warn().Msg("this role may not publish " + recordedSubject + ": gateways learn of outcomes a second later; deploy/nats/roles.conf has the line")
		}
		return
	}
	for start := 0; start < len(keys); start += mostHints {
		part := keys[start:min(start+mostHints, len(keys))]
		data := make([]byte, 0, len(part)*len(uuid.UUID{}))
		for i := range part {
			data = append(data, part[i][:]...)
		}
		if err := h.nc.Publish(recordedSubject, data); err != nil {
			h.log.Debug().Err(err).Msg("hints could not be sent")
			return
		}
	}
}

// HearHints calls hear with each key of each hint, until the connection is closed. It must not block.
func HearHints(nc *nats.Conn, hear func(key uuid.UUID)) error {
	_, err := nc.Subscribe(recordedSubject, func(msg *nats.Msg) {
		for data := msg.Data; len(data) >= len(uuid.UUID{}); data = data[len(uuid.UUID{}):] {
			hear(uuid.UUID(data[:len(uuid.UUID{})]))
		}
	})
	if err != nil {
		return fmt.Errorf("hear hints: %w", err)
	}
	return nil
}
