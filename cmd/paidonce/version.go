package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/migrations"
)

type versionRow struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Schema   int64  `json:"schema"` // the newest that this program knows
}

func (s *session) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print which build this is",
		Example: "  paidonce version\n  paidonce version -o json",
		Args:    noArgs,
		RunE: s.do(func(context.Context, []string) error {
			return cli.One(s.printer(), cli.Table[versionRow]{
				Columns: []string{"version", "revision", "time", "modified", "go", "platform", "schema"},
				Cells: func(r versionRow) []string {
					return []string{r.Version, r.Revision, r.Time, fmt.Sprint(r.Modified), r.Go, r.Platform, fmt.Sprint(r.Schema)}
				},
				Rows: []versionRow{buildVersion()},
			})
		}),
	}
}

func buildVersion() versionRow {
	row := versionRow{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Schema: migrations.Current}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return row
	}
	if info.Main.Version != "" {
		row.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			row.Revision = setting.Value
		case "vcs.time":
			row.Time = setting.Value
		case "vcs.modified":
			row.Modified = setting.Value == "true"
		}
	}
	return row
}

func (s *session) completion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the completion script of a shell",
		Example: "  source <(paidonce completion bash)\n" +
			"  paidonce completion zsh > \"${fpath[1]}/_paidonce\"",
		Args:      cobra.MatchAll(exactly(1, "one shell: bash, zsh, fish or powershell"), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			s.reached = true
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(s.stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(s.stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(s.stdout, true)
			default:
				return cmd.Root().GenPowerShellCompletionWithDesc(s.stdout)
			}
		},
	}
}
