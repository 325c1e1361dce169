package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/backup"
	"github.com/spf13/cobra"
)

func clusterBackup(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Copy the storage of the cluster into a file", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{endless: "yes"},
		Long: "Copy all objects of the storage into a file, a gzipped tar; - is standard output. Servers may run meanwhile.\n\n" +
			"Secrets are in it as they are stored, sealed with the encryption key: keep that one elsewhere. Secrets at AWS are not in it.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		a.reads = true
		if err := needPath("FILE", args[0]); err != nil {
			return err
		}
		if err := reach(a, cmd); err != nil {
			return err
		}
		return takeBackup(a, cmd, args[0])
	})
}

func takeBackup(a *app, cmd *cobra.Command, path string) error {
	var taken backup.Taken
	write := func(to io.Writer) (err error) {
		taken, err = admin.Backup(cmd.Context(), a.storage, a.env.Getenv, to)
		return err
	}
	says, err := cmd.OutOrStdout(), error(nil)
	if path == "-" {
		path = "standard output"
		says, err = cmd.ErrOrStderr(), write(a.env.Stdout) // as it is: what commands say is made printable
	} else {
		err = writeNew(path, write)
	}
	if err != nil {
		return err
	}
	for _, key := range taken.LeftOut {
		fmt.Fprintln(cmd.ErrOrStderr(), oneLine("left out: "+key))
	}
	return a.done(says, fmt.Sprintf("backed up %d objects (%d bytes) to %s", taken.Objects, taken.Bytes, path), taken)
}

// writeNew writes a file that does not exist yet, readable by its owner only. It is complete, or it is not there; if
// the program is killed, it may be empty.
func writeNew(path string, write func(io.Writer) error) (err error) {
	taken, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usagef("FILE: %s exists already, and a backup replaces no file: pass another name", path)
	}
	if err != nil {
		return usagef("FILE: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err = errors.Join(err, taken.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()), os.Remove(path))
	}
	return nil
}

func clusterRestore(a *app) *cobra.Command {
	var r admin.Restore
	var yes bool
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Put a backup of the cluster back into the storage", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{endless: "yes"},
		Long: "Put the objects of a backup back: those that the storage does not have. Others stay as they are, unless --replace names " +
			"their part of the storage. Nothing is deleted.\n\n" +
			"Stop all servers of the cluster first, or those of --shard. The command waits until it is clear that " +
			"none leads with this storage. Never start a server with a copy beside the real one: it would manage the same machines.",
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.Shards, "shard", nil, "put back only the objects of these `shards`, whose servers have stopped (default: all)")
	f.StringSliceVar(&r.Replace, "replace", nil, "`parts` of which objects that differ are replaced, such as config,groups")
	f.BoolVar(&r.DryRun, "dry-run", false, "only show what would be put back")
	f.BoolVarP(&yes, "yes", "y", false, "put back without confirmation; required if standard input is not a terminal")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		a.reads = true
		objects, err := readBackup(a, args[0])
		if err != nil {
			return err
		}
		if err := hasAll("--shard", r.Shards, objects.Shards()); err != nil {
			return err
		}
		if err := hasAll("--replace", r.Replace, objects.Of(r.Shards).Parts()); err != nil {
			return err
		}
		if err := reach(a, cmd); err != nil {
			return err
		}
		r.Storage, r.Getenv = a.storage, a.env.Getenv
		r.Waits = func(d time.Duration) {
			fmt.Fprintf(cmd.ErrOrStderr(), "waiting: %s, to see that no server leads\n", d)
		}
		r.Approve = func(plan *backup.Restore) (err error) {
			if !plan.Empty {
				err = approve(a, cmd, yes, "this changes a storage that is not empty, and may change groups and their machines:",
					planned(plan.Parts), "--dry-run")
			}
			a.reads = err != nil
			return err
		}
		parts, err := r.Run(cmd.Context(), objects)
		if err != nil {
			return err
		}
		if r.DryRun {
			fmt.Fprintln(cmd.ErrOrStderr(), "--dry-run: nothing was changed")
		}
		return printParts(a, cmd, parts)
	})
}

// hasAll returns an error if a backup has none of what a flag names.
func hasAll(flag string, named, has []string) error {
	for _, name := range named {
		if !slices.Contains(has, name) {
			return usagef("%s: the backup has no objects of %q: it has %s", flag, name, strings.Join(has, ", "))
		}
	}
	return nil
}

func readBackup(a *app, path string) (backup.Objects, error) {
	if path == "-" {
		if a.env.Stdin == nil {
			return nil, usagef("FILE: standard input is closed")
		}
		return backup.Read(a.env.Stdin)
	}
	if err := needPath("FILE", path); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, usagef("FILE: %w", err)
	}
	defer func() { _ = file.Close() }() // which was only read
	objects, err := backup.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return objects, nil
}

// mostNamed is how many objects of a part are named before they are put back.
const mostNamed = 20

// planned returns what is put back, a line per part, and one for each of the first configs and groups.
func planned(parts []backup.Restored) (lines []string) {
	for _, p := range parts {
		if p.Added+p.Replaced == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %d added, %d replaced", p.Part, p.Added, p.Replaced))
		if p.Part != "config" && p.Part != "groups" {
			continue
		}
		var named []string
		for _, key := range p.AddedKeys {
			named = append(named, "  added: "+key)
		}
		for _, key := range p.ReplacedKeys {
			named = append(named, "  replaced: "+key)
		}
		lines = append(lines, named[:min(mostNamed, len(named))]...)
		if more := len(named) - mostNamed; more > 0 {
			lines = append(lines, fmt.Sprintf("  and %d more: --dry-run -o json names all", more))
		}
	}
	return lines
}

func printParts(a *app, cmd *cobra.Command, parts []backup.Restored) error {
	count := func(of func(backup.Restored) int) func(backup.Restored) string {
		return func(p backup.Restored) string { return strconv.Itoa(of(p)) }
	}
	return printAll(cmd.OutOrStdout(), a.format, parts, []column[backup.Restored]{
		{"PART", func(p backup.Restored) string { return p.Part }},
		{"ADDED", count(func(p backup.Restored) int { return p.Added })},
		{"REPLACED", count(func(p backup.Restored) int { return p.Replaced })},
		{"SAME", count(func(p backup.Restored) int { return p.Same })},
		{"DIFFERENT, KEPT", count(func(p backup.Restored) int { return p.Different })},
		{"LEFT OUT", count(func(p backup.Restored) int { return p.LeftOut })},
	})
}
