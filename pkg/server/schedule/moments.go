package schedule

import (
	"container/heap"
	"time"
)

// Moments is a queue of keys, each with the time when it is due. A change costs the logarithm of what it
// holds: there may be a key for each group or instance. The zero value is empty. Not safe for concurrent use.
type Moments[K comparable] struct{ queue queue[K] }

// Len returns the number of keys.
func (m *Moments[K]) Len() int { return len(m.queue.moments) }

// Add makes k due at t, or keeps an earlier due time.
func (m *Moments[K]) Add(k K, t time.Time) {
	n, there := m.queue.index[k]
	switch {
	case !there:
		heap.Push(&m.queue, moment[K]{k, t})
	case t.Before(m.queue.moments[n].at):
		m.queue.moments[n].at = t
		heap.Fix(&m.queue, n)
	}
}

// Delete removes k, if it is there.
func (m *Moments[K]) Delete(k K) {
	if n, there := m.queue.index[k]; there {
		heap.Remove(&m.queue, n)
	}
}

// Next returns the earliest due time; zero if there is none.
func (m *Moments[K]) Next() (next time.Time) {
	if m.Len() > 0 {
		next = m.queue.moments[0].at
	}
	return next
}

// Take removes and returns the keys that are due at t, the earliest first.
func (m *Moments[K]) Take(t time.Time) (due []K) {
	for m.Len() > 0 && !m.queue.moments[0].at.After(t) {
		due = append(due, heap.Pop(&m.queue).(moment[K]).key) //nolint:forcetypeassert // the queue has no others
	}
	return due
}

type moment[K comparable] struct {
	key K
	at  time.Time
}

// queue implements heap.Interface, and knows where each key is.
type queue[K comparable] struct {
	moments []moment[K]
	index   map[K]int
}

func (q *queue[K]) Len() int { return len(q.moments) }

func (q *queue[K]) Less(i, j int) bool { return q.moments[i].at.Before(q.moments[j].at) }

func (q *queue[K]) Swap(i, j int) {
	q.moments[i], q.moments[j] = q.moments[j], q.moments[i]
	q.index[q.moments[i].key], q.index[q.moments[j].key] = i, j
}

// Push implements heap.Interface.
func (q *queue[K]) Push(x any) {
	if q.index == nil {
		q.index = map[K]int{}
	}
	m := x.(moment[K]) //nolint:forcetypeassert // Moments pushes no others
	q.index[m.key] = len(q.moments)
	q.moments = append(q.moments, m)
}

// Pop implements heap.Interface.
func (q *queue[K]) Pop() any {
	last := len(q.moments) - 1
	m := q.moments[last]
	q.moments[last] = moment[K]{}
	q.moments = q.moments[:last]
	delete(q.index, m.key)
	return m
}
