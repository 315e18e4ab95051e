package redlatch.interop;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;

/**
 * One connection that listens for all waiters. Each channel has a semaphore without permits, and a message releases
 * one waiter. A connection that was subscribed is not used for commands again.
 */
final class Subscriber extends JedisPubSub {
    private final Map<String, Channel> channels = new HashMap<>();
    private final Map<String, Queue<Channel>> unconfirmed = new HashMap<>();
    private final CountDownLatch listens = new CountDownLatch(1);
    private final String own;
    private final Thread thread;

    Subscriber(RedisClient pool, String own) {
        this.own = own;
        thread = new Thread(() -> pool.subscribe(this, own));
        thread.start();
    }

    /** A channel for which somebody waits. */
    static final class Channel {
        final Semaphore messages = new Semaphore(0);
        private final CountDownLatch confirmed = new CountDownLatch(1);
        private int waiters;
    }

    /** Comes back when the server has confirmed that it will send what is published from now on. */
    Channel join(String name) throws InterruptedException {
        listens.await();
        Channel channel = enter(name);
        channel.confirmed.await();
        return channel;
    }

    private synchronized Channel enter(String name) {
        Channel channel = channels.get(name);
        if (channel == null) {
            channel = new Channel();
            channels.put(name, channel);
            unconfirmed.computeIfAbsent(name, absent -> new ArrayDeque<>()).add(channel);
            subscribe(name);
        }
        channel.waiters++;
        return channel;
    }

    synchronized void leave(String name) {
        if (--channels.get(name).waiters == 0) {
            channels.remove(name);
            unsubscribe(name);
        }
    }

    void close() {
        try {
            listens.await();
            unsubscribe();
            thread.join();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** Answers come in the order of the requests, also of those for a channel that was left and joined again. */
    @Override
    public synchronized void onSubscribe(String name, int subscriptions) {
        if (name.equals(own)) {
            listens.countDown();
        } else {
            unconfirmed.get(name).remove().confirmed.countDown();
        }
    }

    @Override
    public synchronized void onMessage(String name, String message) {
        Channel channel = channels.get(name);
        if (channel != null && message.equals(JedisLocks.UNLOCKED)) {
            channel.messages.release();
        }
    }
}
