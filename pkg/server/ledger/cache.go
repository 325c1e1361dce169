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

// schemaVersion is stored in the file's user_version; a file of another version is replaced.
const schemaVersion = 1

// The exclusive locking mode makes this process the file's only user, and avoids the shared
// memory of a WAL.
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

// errVersion is the error of a file written by another version of this program.
var errVersion = errors.New("another schema version")

// row is a cached object. Without an etag, there is no object.
type row struct {
	etag object.ETag
	body []byte
}

// sum detects damage that SQLite does not: a row whose etag is the listed one replaces reading
// the object.
func (r row) sum() int64 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return int64(crc32.Update(crc32.Checksum([]byte(r.etag), table), table, r.body))
}

// cache stores objects in a SQLite file. All methods are no-ops on a nil cache. Writes are
// queued and batched into transactions by one goroutine; if that fails they are dropped, since
// the etags show that the remaining rows are stale.
type cache struct {
	log  *slog.Logger
	conn *sqlite3.Conn // of the writing goroutine, once started

	mu     sync.Mutex
	read   map[string]map[string]row // by table and key, as found when opened
	queue  map[slot]row              // a row without etag is to be deleted
	wake   chan struct{}             // one token: the queue is not empty
	closed chan struct{}
	done   chan error
}

// slot is a row's position: a table and a key.
type slot struct{ table, key string }

// openCache opens the cache, replacing a broken file. It returns nil if there is no usable file.
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

// replaceable reports whether a new file would help: not if another process has the file
// locked, or if the disk fails.
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

// private restricts the cache's files to their owner: SQLite creates them world-readable, and
// the folder may be, too.
func private(path string) (err error) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if chmodErr := os.Chmod(path+suffix, 0o600); !errors.Is(chmodErr, fs.ErrNotExist) {
			err = errors.Join(err, chmodErr)
		}
	}
	return err
}

func tryCache(path string, log *slog.Logger) (*cache, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the cache's folder: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(file.Close(), private(path))
	}
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
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
	err = c.prepare()
	if err == nil {
		err = private(path) // the WAL exists from the first write on
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare cache: %w", err), conn.Close())
	}
	return c, nil
}

// prepare creates the tables, which shows that the file is writable, and reads them.
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
		if c.read[table], err = c.readTable(table); err != nil {
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

func (c *cache) readTable(table string) (map[string]row, error) {
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

// rows returns the content of a table when the file was opened.
func (c *cache) rows(table string) map[string]row {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read[table]
}

// forgetRead frees what was read: memory is newer from now on.
func (c *cache) forgetRead() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = nil
}

func (c *cache) put(table, key string, r row) { c.enqueue(slot{table, key}, r) }
func (c *cache) delete(table, key string)     { c.enqueue(slot{table, key}, row{}) }
