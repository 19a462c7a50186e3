package queue

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/worker/job"
)

// Role is what a connection may do; deploy/nats has the same words.
type Role string

// The roles.
const (
	RolePublisher   Role = "publisher"   // publishes jobs of one source
	RoleGateway     Role = "gateway"     // publishes jobs of every source
	RoleWorker      Role = "worker"      // binds consumers, publishes dead letters and events
	RoleOperator    Role = "operator"    // reads dead letters, replays, removes what the janitor may remove
	RoleProvisioner Role = "provisioner" // creates and updates streams and consumers
)

// ConnectOptions are the settings of a connection. Role is needed; with the other fields zero it connects as nobody in particular.
type ConnectOptions struct {
	Role         Role
	Source       string         // of a publisher: makes its inbox its own; default none
	Name         string         // shown by the server; default "paidonce <role>"
	CredsFile    string         // JWT and seed; default none
	NKeySeedFile string         // default none
	User         string         // for servers without keys; default none
	Password     string         // default none
	TLS          *tls.Config    // default none
	Log          zerolog.Logger // default none
}

// InboxPrefix is the prefix of the replies to a role. It is private: whoever may read another's inbox sees its payloads, and can forge
// confirmations.
func InboxPrefix(role Role, source string) string {
	if source != "" {
		return "_INBOX_" + string(role) + "." + source
	}
	return "_INBOX_" + string(role)
}

// Connect connects and stays connected: it never gives up, and it returns before the server answers if that is not there yet. Use one
// connection for publishing and another one for consuming.
func Connect(url string, opts ConnectOptions) (*nats.Conn, error) {
	switch opts.Role {
	case RolePublisher, RoleGateway, RoleWorker, RoleOperator, RoleProvisioner:
	default:
		return nil, fmt.Errorf("connect to NATS: unknown role %q", string(opts.Role))
	}
	if opts.Source != "" && !job.ValidName(opts.Source) {
		return nil, errors.New("connect to NATS: source is not a name")
	}
	name := opts.Name
	if name == "" {
		name = "paidonce " + string(opts.Role)
	}

	log := opts.Log.With().Str("connection", name).Logger()
	options := []nats.Option{
		nats.Name(name),
		nats.CustomInboxPrefix(InboxPrefix(opts.Role, opts.Source)),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.RetryOnFailedConnect(true),
		// Without it, two refusals in a row, as while keys are rotated, would close the connection for good.
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			event := log.Error().Err(err)
			if sub != nil {
				event = event.Str("subject", sub.Subject)
			}
			event.Msg("NATS reports an error") // a denied permission shows here and otherwise only as a time-out
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn().Err(err).Msg("NATS connection lost") }),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info().Str("server", nc.ConnectedUrlRedacted()).Msg("NATS connection is back")
		}),
	}
	if opts.CredsFile != "" {
		options = append(options, nats.UserCredentials(opts.CredsFile))
	}
	if opts.NKeySeedFile != "" {
		key, err := nats.NkeyOptionFromSeed(opts.NKeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("read nkey seed file: %w", err)
		}
		options = append(options, key)
	}
	if opts.User != "" {
		options = append(options, nats.UserInfo(opts.User, opts.Password))
	}
	if opts.TLS != nil {
		options = append(options, nats.Secure(opts.TLS))
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS as %s: %w", opts.Role, err)
	}
	return nc, nil
}
