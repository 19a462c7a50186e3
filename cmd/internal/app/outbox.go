package app

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger"
	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/queue"
)

// outbox renders the ledger's events for the relay. Bodies are made at publication, from the row written with the fact, so
// that the same event always has the same bytes.
type outbox struct{ ledger unpublished }

type unpublished interface {
	Unpublished(ctx context.Context, limit int) ([]ledger.Event, error)
	MarkPublished(ctx context.Context, refs []int64) error
}

// event is the body of an event; subscribers rely on its members.
type event struct {
	EventID    string `json:"event_id"`
	Type       string `json:"type"`
	Key        string `json:"key"`
	OccurredAt string `json:"occurred_at"`
	Amount     string `json:"amount"`
	Currency   string `json:"currency"`
	Partner    string `json:"partner,omitempty"`
	TransferID string `json:"transfer_id,omitempty"`
	Code       string `json:"code,omitempty"`
}

// Unpublished reads and renders up to most events.
func (o outbox) Unpublished(ctx context.Context, most int) ([]queue.Event, error) {
	found, err := o.ledger.Unpublished(ctx, most)
	if err != nil {
		return nil, err
	}
	events := make([]queue.Event, len(found))
	for i, e := range found {
		if events[i], err = render(e); err != nil {
			events[i] = queue.Event{ID: e.ID, Ref: e.Ref, Broken: err}
		}
	}
	return events, nil
}

// MarkPublished passes on.
func (o outbox) MarkPublished(ctx context.Context, refs []int64) error {
	return o.ledger.MarkPublished(ctx, refs)
}

func render(e ledger.Event) (queue.Event, error) {
	if e.Key == uuid.Nil {
		return queue.Event{}, fmt.Errorf("render event in row %d of the outbox: its operation is not there; `paidonce prove` tells of such rows", e.Ref)
	}
	if _, known := money.Digits(e.Amount.Currency); !known {
		return queue.Event{}, fmt.Errorf("render event %s: currency %s has no digits that this program knows", e.ID, e.Amount.Currency)
	}
	body, err := json.Marshal(event{
		EventID: e.ID, Type: e.Type, Key: e.Key.String(), OccurredAt: e.OccurredAt.UTC().Format(time.RFC3339Nano),
		Amount: e.Amount.Decimal(), Currency: e.Amount.Currency, Partner: e.Partner, TransferID: e.TransferID, Code: e.Code,
	})
	if err != nil {
		return queue.Event{}, fmt.Errorf("render event %s: %w", e.ID, err)
	}
	return queue.Event{
		ID: e.ID, Subject: "withdrawals.events." + e.Route + "." + e.Source + "." + e.Type,
		Ledger: e.Ledger.String(), Body: body, TraceParent: e.TraceParent, Ref: e.Ref,
	}, nil
}
