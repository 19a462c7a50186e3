package stack

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// fetchPostgres downloads server binaries into the cache and says where they are. The library only offers to start what it
// fetched; that start may fail (it must, as root), the binaries are what counts.
func fetchPostgres() (string, error) {
	cache, err := binaryCache()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, fmt.Sprintf("postgres-%s-%s-%s", embedded.V18, runtime.GOOS, runtime.GOARCH))
	if holdsServer(filepath.Join(home, "bin")) {
		return filepath.Join(home, "bin"), nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	scratch, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", fmt.Errorf("make a scratch directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }() // what stays there does no harm
	port, err := FreePort()
	if err != nil {
		return "", err
	}
	server := embedded.NewDatabase(embedded.DefaultConfig().Version(embedded.V18).Port(uint32(port)).StartTimeout(30 * time.Second).
		CachePath(filepath.Join(scratch, "cache")).RuntimePath(filepath.Join(scratch, "run")).
		BinariesPath(filepath.Join(scratch, "postgres")).Logger(io.Discard))
	started := server.Start()
	if started == nil {
		_ = server.Stop() // it was only wanted for its binaries
	}
	if !holdsServer(filepath.Join(scratch, "postgres", "bin")) {
		return "", fmt.Errorf("fetch postgres %s: %w", embedded.V18, started)
	}
	// Another process may have been quicker: its copy is as good.
	if err := os.Rename(filepath.Join(scratch, "postgres"), home); err != nil && !holdsServer(filepath.Join(home, "bin")) {
		return "", fmt.Errorf("keep the fetched binaries: %w", err)
	}
	return filepath.Join(home, "bin"), nil
}

// binaryCache is a folder that the user who runs Postgres can reach: root's own cache is not.
func binaryCache() (string, error) {
	if os.Geteuid() == 0 && runtime.GOOS != "windows" {
		return "/var/cache/paidonce", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", errNoCache
	}
	return filepath.Join(cache, "paidonce"), nil
}
