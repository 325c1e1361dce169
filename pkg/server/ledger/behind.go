package ledger

import (
	"errors"
	"log/slog"

	"github.com/ncruces/go-sqlite3"
)

// enqueue queues a row to be written. A later row of the same slot replaces it, so the queue
// never outgrows the shard.
func (c *cache) enqueue(s slot, r row) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.queue[s] = r
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run writes until closed. The queue fills while a transaction is written.
func (c *cache) run() {
	for failed := false; ; {
		select {
		case <-c.wake:
			failed = c.report(c.flush(), failed)
		case <-c.closed:
			c.done <- errors.Join(c.flush(), c.conn.Close())
			return
		}
	}
}

// report logs the first failed write and the recovery.
func (c *cache) report(err error, failed bool) bool {
	switch {
	case err != nil && !failed:
		c.log.Warn("can't write cache", slog.Any("reason", err))
	case err == nil && failed:
		c.log.Info("cache writes succeed again")
	}
	return err != nil
}

// close flushes the queue and closes the file. It is called once.
func (c *cache) close() error {
	if c == nil {
		return nil
	}
	close(c.closed)
	return <-c.done
}

// flush writes the queue in one transaction, or drops it.
func (c *cache) flush() (err error) {
	c.mu.Lock()
	queue := c.queue
	c.queue = map[slot]row{}
	c.mu.Unlock()
	if len(queue) == 0 {
		return nil
	}
	tx, err := c.conn.BeginImmediate()
	if err != nil {
		return err
	}
	defer tx.End(&err)
	for _, table := range []string{tableInstances, tableGroups} {
		if err := c.writeTable(table, queue); err != nil {
			return err
		}
	}
	return nil
}

func (c *cache) writeTable(table string, queue map[slot]row) (err error) {
	put, _, err := c.conn.Prepare("REPLACE INTO " + table + " (key, etag, body, sum) VALUES (?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, put.Close()) }()
	del, _, err := c.conn.Prepare("DELETE FROM " + table + " WHERE key = ?")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, del.Close()) }()
	for s, r := range queue {
		if s.table != table {
			continue
		}
		if err := writeRow(put, del, s.key, r); err != nil {
			return err
		}
	}
	return nil
}

func writeRow(put, del *sqlite3.Stmt, key string, r row) error {
	if r.etag == "" {
		return errors.Join(del.BindText(1, key), del.Exec())
	}
	body := r.body
	if body == nil {
		body = []byte{} // an empty object, not an absent one
	}
	return errors.Join(put.BindText(1, key), put.BindText(2, string(r.etag)), put.BindBlob(3, body), put.BindInt64(4, r.sum()), put.Exec())
}
