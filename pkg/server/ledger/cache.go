package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/nstance/nstance/pkg/object"
)

// schemaVersion is kept in the file's user_version; a file of another one is
// replaced.
const schemaVersion = 1

// The locking mode makes this process the file's only user, which also spares
// the shared memory that a WAL needs otherwise.
const schema = `
PRAGMA locking_mode = exclusive;
PRAGMA journal_mode = wal;
PRAGMA synchronous = normal;
PRAGMA journal_size_limit = 1048576;
CREATE TABLE IF NOT EXISTS instances (key TEXT PRIMARY KEY, etag TEXT NOT NULL, body BLOB NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups    (key TEXT PRIMARY KEY, etag TEXT NOT NULL, body BLOB NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
`

// The tables.
const (
	tableInstances = "instances"
	tableGroups    = "groups"
)

// errVersion is a file written by another version of this program.
var errVersion = errors.New("another schema version")

// row is an object as the cache knows it. A body without an etag is none.
type row struct {
	etag object.ETag
	body []byte
}

// sum guards against damage that SQLite does not see: a row is taken for the
// object itself when only its etag is the listed one.
func (r row) sum() int64 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return int64(crc32.Update(crc32.Checksum([]byte(r.etag), table), table, r.body))
}

// cache remembers objects in a SQLite file. All its methods may be called on a
// nil cache, which remembers nothing. Writes are queued and written by one
// goroutine, many in a transaction; when that fails they are dropped, since the
// etags tell that the rows that stay are old.
type cache struct {
	log  *slog.Logger
	conn *sqlite3.Conn // of the writing goroutine, once that runs

	mu     sync.Mutex
	read   map[string]map[string]row // by table and key, as found when opened
	queue  map[slot]row              // a row without etag is to be deleted
	wake   chan struct{}             // one token: the queue is not empty
	closed chan struct{}
	done   chan error
}

// slot is a place in a table.
type slot struct{ table, key string }

// openCache opens, repairs by replacing, or does without.
func openCache(path string, log *slog.Logger) *cache {
	log = log.With(slog.String("path", path))
	c, err := tryCache(path, log)
	if replaceable(err) {
		log.Warn("cache file replaced", slog.Any("reason", err))
		if err = removeFiles(path); err == nil {
			c, err = tryCache(path, log)
		}
	}
	if err != nil {
		log.Warn("working without a cache file", slog.Any("reason", err))
		return nil
	}
	go c.run()
	return c
}

// replaceable reports whether a new file would help: not when another process
// has this one, or when the disk is at fault.
func replaceable(err error) bool {
	return errors.Is(err, sqlite3.CORRUPT) || errors.Is(err, sqlite3.NOTADB) ||
		errors.Is(err, sqlite3.ERROR) || errors.Is(err, errVersion)
}

func removeFiles(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove cache file: %w", err)
		}
	}
	return nil
}

func tryCache(path string, log *slog.Logger) (*cache, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the cache's folder: %w", err)
	}
	conn, err := sqlite3.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	c := &cache{
		log: log, conn: conn,
		read: map[string]map[string]row{}, queue: map[slot]row{},
		wake: make(chan struct{}, 1), closed: make(chan struct{}), done: make(chan error, 1),
	}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare cache: %w", err), conn.Close())
	}
	return c, nil
}

// prepare makes the tables, shows that the file can be written, and reads it.
func (c *cache) prepare() error {
	version, err := c.version()
	if err != nil {
		return err
	}
	if version != 0 && version != schemaVersion {
		return fmt.Errorf("%w: %d, want %d", errVersion, version, schemaVersion)
	}
	if err := c.conn.Exec(schema); err != nil {
		return err
	}
	if err := c.conn.Exec(fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)); err != nil {
		return err
	}
	for _, table := range []string{tableInstances, tableGroups} {
		if c.read[table], err = c.rows(table); err != nil {
			return err
		}
	}
	return nil
}

func (c *cache) version() (int, error) {
	stmt, _, err := c.conn.Prepare("PRAGMA user_version")
	if err != nil {
		return 0, err
	}
	var version int
	if stmt.Step() {
		version = stmt.ColumnInt(0)
	}
	return version, errors.Join(stmt.Err(), stmt.Close())
}

func (c *cache) rows(table string) (map[string]row, error) {
	stmt, _, err := c.conn.Prepare("SELECT key, etag, body, sum FROM " + table)
	if err != nil {
		return nil, err
	}
	rows := map[string]row{}
	for stmt.Step() {
		r := row{etag: object.ETag(stmt.ColumnText(1)), body: bytes.Clone(stmt.ColumnRawBlob(2))}
		if stmt.ColumnInt64(3) == r.sum() {
			rows[stmt.ColumnText(0)] = r
		}
	}
	return rows, errors.Join(stmt.Err(), stmt.Close())
}

// instances returns what the file held when it was opened.
func (c *cache) instances() map[string]row {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read[tableInstances]
}

// groups returns the objects with dynamic groups that the file held when it was opened.
func (c *cache) groups() map[string]row {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read[tableGroups]
}

// forgetRead frees what was read: from now on memory knows better.
func (c *cache) forgetRead() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = nil
}

func (c *cache) putInstance(key string, r row) { c.enqueue(slot{tableInstances, key}, r) }
func (c *cache) deleteInstance(key string)     { c.enqueue(slot{tableInstances, key}, row{}) }

// putGroups leaves an object with dynamic groups, which may be large, to the next write
// of a record or to the end. Until then the etag tells that the row is old.
func (c *cache) putGroups(key string, r row) { c.remember(slot{tableGroups, key}, r) }
