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

// The parts of a line of pg_waldump: how long the record is, the relation of its first block, and blocks that are in it as a whole.
const (
	recordPart = `len \(rec/tot\): +\d+/ +(\d+),.*? desc: .*?blkref #0: rel \d+/\d+/(\d+) `
	imagePart  = `rel \d+/\d+/(\d+) (?:fork \w+ )?blk \d+ FPW`
)

// walByRelation tells, per operation, what the log between two places holds of each relation: full-page images, and bytes.
func (s *server) walByRelation(ctx context.Context, database, from, to string, operations float64) (images, written map[string]float64, err error) {
	names, err := s.relationNames(ctx, database)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.postgres.BinDir(), "pg_waldump"), "-p", filepath.Join(s.pgDir(), "data", "pg_wal"), "-s", from, "-e", to)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("read the log: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("read the log: %w", err)
	}
	name := func(node []byte) string {
		if known, ok := names[string(node)]; ok {
			return known
		}
		return "other"
	}
	images, written = map[string]float64{}, map[string]float64{}
	image, record := regexp.MustCompile(imagePart), regexp.MustCompile(recordPart)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if found := record.FindSubmatch(lines.Bytes()); found != nil {
			length, _ := strconv.Atoi(string(found[1])) // digits
			written[name(found[2])] += float64(length) / operations
		}
		if bytes.Contains(lines.Bytes(), []byte(" FPW")) {
			for _, found := range image.FindAllSubmatch(lines.Bytes(), -1) {
				images[name(found[1])] += 1 / operations
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("read the log: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, nil, fmt.Errorf("read the log: pg_waldump: %w: %s", err, said.String())
	}
	return images, written, nil
}

// relationNames gives the relations of a database by the file that each lies in.
func (s *server) relationNames(ctx context.Context, database string) (map[string]string, error) {
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
	return names, nil
}
