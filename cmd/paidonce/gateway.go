package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/app"
)

func (s *session) gateway() *cobra.Command {
	return &cobra.Command{
		Use:   "gateway",
		Short: "Serve the HTTP API for upstream systems",
		Long: "Accepts withdrawals by POST /v1/withdrawals, each at most once under its Idempotency-Key, and publishes them to the broker. Runs\n" +
			"until SIGTERM or SIGINT, then answers what is in work. The document of the API is at /openapi.json. Put TLS in front.",
		Example: "  paidonce gateway --config /etc/paidonce/paidonce.yaml\n" +
			"  paidonce gateway --set gateway.listen=0.0.0.0:8470 --set health.listen=0.0.0.0:9471",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error { return s.runGateway(ctx) }),
	}
}

func (s *session) runGateway(ctx context.Context) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	return app.RunGateway(ctx, c, s.log(c), app.GatewayOptions{})
}

func (s *session) runBoth(ctx context.Context) error {
	c, err := s.load()
	if err != nil {
		return err
	}
	return app.RunBoth(ctx, c, s.log(c), app.GatewayOptions{})
}
