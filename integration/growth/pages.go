package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// image is a block of a record of pg_waldump that is in the log as a whole.
const image = `rel \d+/\d+/(\d+) (?:fork \w+ )?blk \d+ FPW`

// imagesByRelation counts the full-page images between two places of the log, per operation.
func (s *server) imagesByRelation(ctx context.Context, database, from, to string, operations float64) (map[string]float64, error) {
	names := map[string]string{}
	err := s.with(ctx, database, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT pg_relation_filenode(oid)::text, relname FROM pg_class WHERE relkind IN ('r', 'i') AND pg_relation_filenode(oid) IS NOT NULL`)
		if err != nil {
			return err
		}
		var node, name string
		_, err = pgx.ForEachRow(rows, []any{&node, &name}, func() error {
			names[node] = name
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the names of relations: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.postgres.BinDir(), "pg_waldump"), "-p", filepath.Join(s.pgDir(), "data", "pg_wal"), "-s", from, "-e", to)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	counts := map[string]float64{}
	pattern := regexp.MustCompile(image)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := lines.Bytes()
		if !bytes.Contains(text, []byte(" FPW")) {
			continue
		}
		for _, found := range pattern.FindAllSubmatch(text, -1) {
			name, known := names[string(found[1])]
			if !known {
				name = "relation " + strconv.Quote(string(found[1]))
			}
			counts[name]++
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("read the log: pg_waldump: %w: %s", err, said.String())
	}
	for name := range counts {
		counts[name] /= operations
	}
	return counts, nil
}
