package ledger

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// farewell bounds each of the two things that are still done for a connection whose reply is not waited for any longer: asking the server to
// cancel the statement, and hanging up in order. Where the network swallows bytes, pgx takes 15 s for both; so long the connection would keep its
// place in the pool after the network is back, and a process that stops would wait for it. The server bounds the statement by itself.
const farewell = time.Second

// boundFarewell makes a connection that is about to be made go within two farewells. Whatever is dialled for it once it stands is a request to
// cancel.
func boundFarewell(cfg *pgx.ConnConfig) {
	dial := cfg.DialFunc
	var stands atomic.Bool
	cfg.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		stands.Store(true)
		return nil
	}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !stands.Load() {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return parting{conn}, nil
		}
		ctx, cancel := context.WithTimeout(ctx, farewell)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(farewell))
	}
}

// parting is a connection to the server. pgx sets no deadline in the future but the one for hanging up.
type parting struct{ net.Conn }

// SetDeadline allows a farewell at most; none at all, and one that is over, are as they are said.
func (p parting) SetDeadline(t time.Time) error {
	if latest := time.Now().Add(farewell); t.After(latest) {
		t = latest
	}
	return p.Conn.SetDeadline(t)
}
