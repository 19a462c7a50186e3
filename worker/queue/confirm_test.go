package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestRefused_OnlyWhatTheBrokerSurelyHasNot: an answer after which the message may still be stored is no refusal.
func TestRefused_OnlyWhatTheBrokerSurelyHasNot(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nats.ErrMaxPayload, true},
		{nats.ErrBadSubject, true},
		{&jetstream.APIError{Code: 400, ErrorCode: 10060, Description: "expected stream does not match"}, true},
		{&jetstream.APIError{Code: 404, ErrorCode: 10059, Description: "stream not found"}, true},
		{&jetstream.APIError{Code: 409, ErrorCode: 10158, Description: "duplicate message id is in process"}, false},
		{&jetstream.APIError{Code: 408}, false},
		{&jetstream.APIError{Code: 429, Description: "too many requests"}, false},
		{&jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}, false},
		{nats.ErrTimeout, false},
		{nats.ErrNoResponders, false},
		{errors.New("anything else"), false},
	} {
		if got := refused(fmt.Errorf("publish: %w", test.err)); got != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
	}
}

// told is a future that has its confirmation.
type told struct{ jetstream.PubAckFuture }

func (told) Ok() <-chan *jetstream.PubAck {
	c := make(chan *jetstream.PubAck, 1)
	c <- &jetstream.PubAck{Stream: "ANOTHER"}
	return c
}

func (told) Err() <-chan error { return nil }

// Another stream's confirmation is none, also when the wait is over at the same moment: which of the two is looked at first is chance.
func TestAwait_AnotherStreamsConfirmationIsNone(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		if c := (confirmer{stream: StreamDead}).await(over, told{}); c.err == nil {
			t.Fatal("a confirmation by another stream was taken")
		}
	}
}
