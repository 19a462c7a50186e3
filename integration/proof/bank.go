package proof

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgxpool"
)

// bankWitness asks a simulated bank about itself, over its control API.
type bankWitness struct {
	controlURL string
	http       *http.Client
}

func newBankWitness(controlURL string) bankWitness {
	return bankWitness{controlURL: controlURL, http: &http.Client{Timeout: time.Minute}}
}

// summary is what the bank's oracle says in numbers.
type summary struct {
	Pending    int64 `json:"pending"`
	Requests   int64 `json:"requests"`
	Violations int64 `json:"violations"`
}

func (b bankWitness) summary(ctx context.Context) (summary, error) {
	var s summary
	body, err := b.get(ctx, "/oracle/summary")
	if err != nil {
		return s, err
	}
	err = json.UnmarshalRead(body, &s)
	return s, errors.Join(err, body.Close())
}

// paid is a transfer in the bank's own book by which money left.
type paid struct {
	partnerKey string
	Execution
}

// book reads all transfers by which money left.
func (b bankWitness) book(ctx context.Context) ([]paid, error) {
	body, err := b.get(ctx, "/statement")
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // only read from
	var all []paid
	for decoder := jsontext.NewDecoder(body); ; {
		var t struct {
			ID       string `json:"id"`
			Key      string `json:"key"`
			Amount   string `json:"amount"`
			Currency string `json:"currency"`
			Executed bool   `json:"executed"`
		}
		if err := json.UnmarshalDecode(decoder, &t); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the bank's book: %w", err)
		}
		if !t.Executed {
			continue
		}
		minor, err := strconv.ParseInt(strings.Replace(t.Amount, ".", "", 1), 10, 64)
		if err != nil {
			minor = math.MinInt64 // no amount of ours
		}
		all = append(all, paid{partnerKey: t.Key, Execution: Execution{TransferID: t.ID, AmountMinor: minor, Currency: t.Currency}})
	}
}

func (b bankWitness) get(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.controlURL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the bank: %w", err)
	}
	response, err := b.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the bank: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("ask the bank for %s: status %d", path, response.StatusCode), response.Body.Close())
	}
	return response.Body, nil
}

// ErrNoAttempt: a request reached a bank, and no attempt for it is committed.
var ErrNoAttempt = errors.New("a request arrived whose attempt is not committed")

// AttemptCommitted is I2, seen from the other end: when a request arrives at a bank, its attempt must be visible from a connection that has
// nothing to do with the worker.
func AttemptCommitted(ctx context.Context, pool *pgxpool.Pool, partnerKey string) error {
	var committed bool
	err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM attempts WHERE partner_key = $1)", partnerKey).Scan(&committed)
	if err != nil {
		return fmt.Errorf("look for the attempt: %w", err)
	}
	if !committed {
		return ErrNoAttempt
	}
	return nil
}
