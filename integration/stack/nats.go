package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATSOptions says what to start; its zero value works.
type NATSOptions struct {
	Dir         string // private directory, kept by Shutdown and used again; default: temporary, removed by Shutdown
	Port        int    // default: a free one
	NoSync      bool   // do not sync each write, against what production does; default: sync always
	ConfigFile  string // nats-server configuration with users and permissions; default: everything is allowed
	MaxPayload  int32  // bytes; default: nats-server's, 1 MiB
	LogFile     string // default: no log
	StoreMemory int64  // bytes that JetStream may hold in memory; default: nats-server's
}

// NATS is a JetStream server inside this process.
type NATS struct {
	server *server.Server
	dir    *Directory
}

// StartNATS starts a JetStream server inside this process. It handles no signals.
func StartNATS(options NATSOptions) (*NATS, error) {
	dir, err := OpenDirectory(options.Dir)
	if err != nil {
		return nil, err
	}
	ns, err := runNATS(options, dir.path)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &NATS{server: ns, dir: dir}, nil
}

func runNATS(options NATSOptions, dir string) (*server.Server, error) {
	settings := &server.Options{}
	if options.ConfigFile != "" {
		var err error
		if settings, err = server.ProcessConfigFile(options.ConfigFile); err != nil {
			return nil, fmt.Errorf("read the nats configuration: %w", err)
		}
	}
	settings.Host = "127.0.0.1"
	settings.Port = options.Port
	if settings.Port == 0 {
		settings.Port = server.RANDOM_PORT
	}
	settings.JetStream = true
	settings.StoreDir = filepath.Join(dir, "jetstream")
	settings.SyncAlways = !options.NoSync
	settings.NoSigs = true
	settings.LogFile = options.LogFile
	settings.NoLog = options.LogFile == ""
	if options.MaxPayload != 0 {
		settings.MaxPayload = options.MaxPayload
	}
	if options.StoreMemory != 0 {
		settings.JetStreamMaxMemory = options.StoreMemory
	}
	ns, err := server.NewServer(settings)
	if err != nil {
		return nil, fmt.Errorf("configure nats: %w", err)
	}
	if !settings.NoLog {
		ns.ConfigureLogger()
	}
	ns.Start()
	if !ns.ReadyForConnections(30 * time.Second) {
		ns.Shutdown()
		return nil, fmt.Errorf("start nats on port %d: not ready within 30 s", settings.Port)
	}
	return ns, nil
}

// URL is where clients connect.
func (n *NATS) URL() string { return n.server.ClientURL() }

// Server is the embedded server itself.
func (n *NATS) Server() *server.Server { return n.server }

// Shutdown ends the server and removes its directory if that was a temporary one.
func (n *NATS) Shutdown() error {
	n.server.Shutdown()
	n.server.WaitForShutdown()
	if err := n.dir.Close(); !errors.Is(err, os.ErrClosed) { // a test may have ended it on the way
		return err
	}
	return nil
}
